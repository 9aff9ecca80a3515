#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How far gradients are from PyTorch's in f32: Cadre's and PyTorch's in bf16.

    bench/train/gradients.py [--rows cnn,gpt] [--cadre build/release/bin/cadre]

Losses after 200 steps depend on chance as soon as anything is rounded; what a
precision costs shows in the gradients of one step, from the same weights on the
same batch: ||a - b|| / ||b|| over all parameters, b being PyTorch's in f32. Cadre's
are what a step of SGD at a rate of 100 takes from the weights. PyTorch's bf16 is its
autocast. Needs Debian's python3-torch, bible-kjv and dataset-fashion-mnist.
"""
import argparse
import pathlib
import subprocess
import tempfile
import types

import torch

import torch_step
from rows import ROWS

RATE = 100.0


def cadre_weights(args, row, folder, rate, precision):
    """After a step from the initial weights."""
    keys = [f"train.global_batch={row.batch}", "parallel.leaves=1",
            "train.micro_batch=0", "optim.name=sgd", "optim.momentum=0",
            "optim.weight_decay=0", "optim.schedule=constant",
            "optim.warmup_steps=0", "optim.clip=0", f"optim.lr={rate}",
            f"train.precision={precision}", *row.keys]
    sets = [word for key in keys for word in ("--set", key)]
    subprocess.run([args.cadre, "train", row.recipe, "--threads", "1", "--quiet",
                    "--steps", "1", "--out", folder, *sets],
                   check=True, stdout=subprocess.DEVNULL)
    path = pathlib.Path(folder) / "model.safetensors"
    return path, {name: t.double()
                  for name, t in torch_step.safetensors(path).items()
                  if ".running_" not in name}


def torch_gradients(row, weights, precision):
    settings = types.SimpleNamespace(
        weights=weights, precision=precision, channels_last=False, rank=0, world=1)
    trainer = torch_step.Trainer(row, settings)
    trainer.losses(1, 0.0)
    return {name: p.grad.double()
            for name, p in trainer.model.named_parameters()}


def in_line(gradients, like):
    """One vector; names are the same in a GPT, elsewhere the order is."""
    if gradients.keys() == like.keys():
        gradients = {name: gradients[name] for name in like}
    return torch.cat([g.flatten() for g in gradients.values()])


def distances(args, row, folder):
    path, start = cadre_weights(args, row, f"{folder}/start", 0.0, "f32")
    theirs = torch_gradients(row, path, "f32")
    found = []
    for precision in ("f32", "bf16"):
        _, end = cadre_weights(args, row, f"{folder}/{precision}", RATE, precision)
        found.append({name: (start[name] - end[name]) / RATE for name in start})
    found.append(torch_gradients(row, path, "bf16"))
    right = in_line(theirs, theirs)
    return [((in_line(g, theirs) - right).norm() / right.norm()).item()
            for g in found]


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--cadre", default="build/release/bin/cadre")
    p.add_argument("--rows", default=",".join(ROWS))
    args = p.parse_args()
    print("| from PyTorch's f32 | Cadre, f32 | Cadre, bf16 | PyTorch, bf16 |\n"
          "|---|---|---|---|")
    for name in args.rows.split(","):
        row = ROWS[name]
        with tempfile.TemporaryDirectory(prefix="cadre-bench-") as folder:
            ours, ours_bf16, theirs_bf16 = distances(args, row, folder)
        print(f"| {row.title} | {ours:.0e} | {ours_bf16:.4f} | {theirs_bf16:.4f} |",
              flush=True)


if __name__ == "__main__":
    main()
