#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""cnn-fashion against PyTorch: the loss from the same weights and batches.

    bench/cnn_vs_torch.py CADRE [--steps 50] [--last 11]

Cadre makes the first steps of the recipe; PyTorch starts from its initial
weights (taken from a step that changes nothing) and takes the batches in its
order. PyTorch's variants, one and two threads with and without oneDNN, say how
far equal computations drift apart; Cadre's mean loss over the last steps may
differ from theirs by 3 times their spread, or 0.5 %, whichever is larger.
Needs Debian's python3-torch; exits with 1 if it differs by more.
"""
import argparse
import gzip
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy as np
import torch
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "train"))
from order import sample_at

FASHION = "/usr/share/datasets/fashion-mnist"
SEED, BATCH, N_TRAIN = 1, 128, 60000


def fashion():
    with gzip.open(f"{FASHION}/train-images-idx3-ubyte.gz") as f:
        x = np.frombuffer(f.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(f"{FASHION}/train-labels-idx1-ubyte.gz") as f:
        y = np.frombuffer(f.read(), np.uint8, offset=8)
    return x, y


def tensors(path):
    """A safetensors file of f32."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8 : 8 + length])
    head.pop("__metadata__", None)
    body = data[8 + length :]
    return {
        name: torch.from_numpy(
            np.frombuffer(body[slice(*t["data_offsets"])], "<f4").copy()
        ).reshape(t["shape"])
        for name, t in head.items()
    }


def train(cadre, out, *arguments):
    subprocess.run(
        [cadre, "train", "cnn-fashion", "--threads", "1", "--quiet", "--out",
         str(out), *arguments], check=True)


def cadre_losses(cadre, steps, folder):
    train(cadre, folder / "start", "--steps", "1", "--set", "optim.lr=0",
          "--set", "optim.weight_decay=0")
    train(cadre, folder / "run", "--steps", str(steps), "--set",
          "train.log_every=1", "--set", "optim.lr=1e-3", "--set",
          "optim.schedule=constant", "--set", "optim.warmup_steps=0")
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    losses = [line["loss"] for line in map(json.loads, lines) if "loss" in line]
    return tensors(folder / "start" / "model.safetensors"), losses[:steps]


def torch_losses(weights, steps):
    nn = torch.nn
    net = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(3136, 128), nn.ReLU(), nn.Linear(128, 10),
    )
    names = [f"{layer}.{kind}" for layer in
             ("conv1", "conv2", "conv3", "conv4", "fc1", "fc2")
             for kind in ("weight", "bias")]
    for name, p in zip(names, net.parameters()):
        assert p.shape == weights[name].shape
        p.data = weights[name].clone()
    images, classes = fashion()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.01)
    losses = []
    for step in range(steps):
        at = [sample_at(i, N_TRAIN, SEED)
              for i in range(step * BATCH, (step + 1) * BATCH)]
        x = (torch.from_numpy(images[at]).float() / 255 - 0.2860) / 0.3530
        y = torch.from_numpy(classes[at].astype("int64"))
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    p = argparse.ArgumentParser()
    p.add_argument("cadre")
    p.add_argument("--steps", type=int, default=50)
    p.add_argument("--last", type=int, default=11, help="steps to compare")
    args = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="cadre-cnn-") as folder:
        weights, ours = cadre_losses(
            args.cadre, args.steps, pathlib.Path(folder))
    mine = np.mean(ours[-args.last :])
    print(f"cadre: first loss {ours[0]:.6f}, mean of the last {mine:.6f}")
    means = []
    for threads in (1, 2):
        for onednn in (True, False):
            torch.set_num_threads(threads)
            with torch.backends.mkldnn.flags(enabled=onednn):
                theirs = torch_losses(weights, args.steps)
            means.append(np.mean(theirs[-args.last :]))
            print(f"torch, {threads} threads, oneDNN {onednn}: first loss "
                  f"{theirs[0]:.6f}, mean of the last {means[-1]:.6f}")
    middle, spread = np.mean(means), max(means) - min(means)
    allowed = max(3 * spread, 0.005 * middle)
    print(f"difference {abs(mine - middle):.6f}, allowed {allowed:.6f}")
    return 0 if abs(mine - middle) <= allowed else 1


if __name__ == "__main__":
    sys.exit(main())
