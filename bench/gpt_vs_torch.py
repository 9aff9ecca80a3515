#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""gpt-kjv-small against PyTorch: 1,000 steps from the same weights and batches.

    bench/gpt_vs_torch.py CADRE [--steps 1000]

Cadre trains the recipe as it is; PyTorch starts from its initial weights (taken
from a step that changes nothing), takes the batches in its order, and makes the
same updates: AdamW that leaves biases and gains alone, the norm of the gradient
limited, the rate rising and then falling along a cosine. Two numbers may differ
by 1 %: the mean loss of steps 180 to 200, and the loss over the whole test split
at the end. Cadre's model then writes some verses. Needs Debian's python3-torch
and bible-kjv; takes some ten minutes; exits with 1 if it differs by more.
"""
import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
from torch.nn import functional as F

from cnn_vs_torch import sample_at, tensors

LAYERS, WIDTH, HEADS, CONTEXT, BATCH = 4, 128, 4, 128, 16
RATE, LEAST, WARMUP, DECAY, CLIP = 2e-3, 0.1, 50, 0.01, 1.0


def bible():
    text = subprocess.run(["bible", "-f", "Gen1:1-Rev22:21"],
                          capture_output=True, check=True).stdout
    data = torch.from_numpy(np.frombuffer(text, np.uint8).astype("int64"))
    cut = len(data) * 95 // 100
    return data[:cut], data[cut:]


def samples(data, numbers):
    rows = torch.stack([data[i * CONTEXT : (i + 1) * CONTEXT + 1]
                        for i in numbers])
    return rows[:, :-1], rows[:, 1:]


def train(cadre, out, *arguments):
    subprocess.run(
        [cadre, "train", "gpt-kjv-small", "--threads", "1", "--quiet", "--out",
         str(out), *arguments], check=True)


def logged(out):
    lines = (out / "metrics.jsonl").read_text().splitlines()
    return [line["loss"] for line in map(json.loads, lines) if "loss" in line]


class Gpt:
    """The model, as a function of Cadre's parameters."""

    def __init__(self, weights):
        self.p = {name: torch.nn.Parameter(w) for name, w in weights.items()}
        self.mask = torch.ones(CONTEXT, CONTEXT).tril().logical_not()

    def linear(self, name, x):
        return F.linear(x, self.p[f"{name}.weight"], self.p[f"{name}.bias"])

    def norm(self, name, x):
        return F.layer_norm(x, (WIDTH,), self.p[f"{name}.weight"],
                            self.p[f"{name}.bias"])

    def attend(self, x):
        b, t, _ = x.shape
        q, k, v = (z.view(b, t, HEADS, -1).transpose(1, 2)
                   for z in x.split(WIDTH, 2))
        s = (q @ k.transpose(-2, -1)) / math.sqrt(WIDTH // HEADS)
        p = s.masked_fill(self.mask, float("-inf")).softmax(-1)
        return (p @ v).transpose(1, 2).reshape(b, t, WIDTH)

    def loss(self, x, y, reduction="mean"):
        h = F.embedding(x, self.p["tok.weight"]) + self.p["pos.weight"]
        for b in (f"blocks.{i}" for i in range(LAYERS)):
            a = self.attend(self.linear(f"{b}.qkv", self.norm(f"{b}.ln1", h)))
            h = h + self.linear(f"{b}.proj", a)
            a = F.gelu(self.linear(f"{b}.up", self.norm(f"{b}.ln2", h)))
            h = h + self.linear(f"{b}.down", a)
        scores = F.linear(self.norm("ln", h), self.p["tok.weight"])
        return F.cross_entropy(scores.flatten(0, 1), y.flatten(),
                               reduction=reduction)


def rate_of(update, steps):
    if update < WARMUP:
        return RATE * update / WARMUP
    past = (update - 1 - WARMUP) / (steps - WARMUP) if update > WARMUP else 0
    falls = (1 + math.cos(math.pi * past)) / 2
    return RATE * (LEAST + (1 - LEAST) * falls)


def torch_run(weights, steps):
    net = Gpt(weights)
    text, test = bible()
    n_train, n_test = (len(text) - 1) // CONTEXT, (len(test) - 1) // CONTEXT
    params = list(net.p.values())
    optimizer = torch.optim.AdamW([
        {"params": [p for p in params if p.dim() > 1], "weight_decay": DECAY},
        {"params": [p for p in params if p.dim() == 1], "weight_decay": 0.0},
    ])
    losses = []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate_of(step + 1, steps)
        places = range(step * BATCH, (step + 1) * BATCH)
        loss = net.loss(*samples(text, [sample_at(i, n_train) for i in places]))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, CLIP)
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        total = sum(
            net.loss(*samples(test, range(i, min(i + 16, n_test))), "sum").item()
            for i in range(0, n_test, 16))
    return losses, total / (n_test * CONTEXT)


def compare(what, mine, theirs):
    off = abs(mine - theirs) / theirs
    print(f"{what}: cadre {mine:.6f}, torch {theirs:.6f}, "
          f"{100 * off:.2f} % apart", flush=True)
    return off <= 0.01


def main():
    p = argparse.ArgumentParser()
    p.add_argument("cadre")
    p.add_argument("--steps", type=int, default=1000, help="at least 200")
    p.add_argument("--out", type=pathlib.Path, help="keeps Cadre's run there")
    args = p.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="cadre-gpt-") as folder:
        start = pathlib.Path(folder) / "start"
        run = args.out or pathlib.Path(folder) / "run"
        train(args.cadre, start, "--steps", "1", "--set", "optim.lr=0",
              "--set", "optim.weight_decay=0")
        train(args.cadre, run, "--steps", str(args.steps), "--set",
              "train.log_every=1")
        ours = logged(run)
        test = json.loads((run / "summary.json").read_text())["eval"]["loss"]
        theirs, their_test = torch_run(
            tensors(start / "model.safetensors"), args.steps)
        alike = [
            compare("first loss", ours[0], theirs[0]),
            compare("mean of steps 180 to 200", np.mean(ours[179:200]),
                    np.mean(theirs[179:200])),
            compare(f"test loss after {args.steps} steps", test, their_test)]
        print(f"bits per byte: cadre {test / math.log(2):.4f}, "
              f"torch {their_test / math.log(2):.4f}", flush=True)
        subprocess.run([args.cadre, "generate", str(run), "--prompt",
                        "And the LORD said", "--length", "400"], check=True)
    return 0 if all(alike) else 1


if __name__ == "__main__":
    sys.exit(main())
