#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/nn/references.txt with PyTorch (Debian's python3-torch).

  tools/make_nn_references.py > tests/nn/references.txt

Inputs come from a formula that the test computes as well, so only results are
stored. Layers are computed in f64 and rounded once; the five losses of the MLP
are those of an ordinary f32 training with AdamW.

An entry:  kind N I O tensor step count norm  and then count f32 bit patterns:
elements 0, step, 2 step ... of the tensor; norm is that of all its elements.
"""
import gzip
import struct

import numpy as np
import torch
from torch.nn import functional as F

FASHION = "/usr/share/datasets/fashion-mnist"
X, WEIGHT, BIAS, DY, LABEL = 1, 2, 3, 4, 5  # tags of the formula


def words(tag, count):
    """32 well mixed bits for each element."""
    h = np.arange(count, dtype=np.uint32) * np.uint32(2654435761)
    h ^= np.uint32(tag * 0x9E3779B9 & 0xFFFFFFFF)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        h ^= h >> np.uint32(shift)
        h *= np.uint32(factor)
    return h ^ (h >> np.uint32(16))


def values(tag, shape, scale=1.0):
    """Uniform in [-scale, scale), never 0, in f32."""
    count = int(np.prod(shape))
    unit = (words(tag, count) >> np.uint32(8)).astype(np.float32)
    unit = (unit + np.float32(0.5)) * np.float32(2.0**-23) - np.float32(1.0)
    result = (unit * np.float32(scale)).reshape(shape)
    assert np.all(result != 0)
    return torch.from_numpy(result)


def labels(n, classes):
    return torch.from_numpy((words(LABEL, n) % np.uint32(classes)).astype(np.int64))


def bound(fan_in):
    return 1.0 / np.sqrt(float(fan_in))


def show(kind, n, i, o, tensor, result):
    flat = result.detach().flatten().double().numpy()
    step = 1 if len(flat) <= 5005 else 257
    kept = flat[::step].astype(np.float32)
    print(f"{kind} {n} {i} {o} {tensor} {step} {len(kept)} {np.linalg.norm(flat):.17g}")
    patterns = [f"{p:08x}" for p in kept.view(np.uint32)]
    for at in range(0, len(patterns), 8):
        print(" ".join(patterns[at : at + 8]))


def linear(n, i, o):
    x = values(X, (n, i)).double().requires_grad_()
    w = values(WEIGHT, (o, i), bound(i)).double().requires_grad_()
    b = values(BIAS, (o,), bound(i)).double().requires_grad_()
    y = F.linear(x, w, b)
    y.backward(values(DY, (n, o)).double())
    for tensor, result in (("y", y), ("dx", x.grad), ("dw", w.grad), ("db", b.grad)):
        show("linear", n, i, o, tensor, result)


def relu(n, i):
    x = values(X, (n, i)).double().requires_grad_()
    y = F.relu(x)
    y.backward(values(DY, (n, i)).double())
    show("relu", n, i, i, "y", y)
    show("relu", n, i, i, "dx", x.grad)


def softmax_cross_entropy(n, classes):
    z = values(X, (n, classes), 8.0).double().requires_grad_()
    losses = F.cross_entropy(z, labels(n, classes), reduction="none")
    losses.sum().backward()
    show("softmax_cross_entropy", n, classes, classes, "loss", losses)
    show("softmax_cross_entropy", n, classes, classes, "dz", z.grad)


def fashion(n):
    with gzip.open(f"{FASHION}/train-images-idx3-ubyte.gz") as f:
        x = np.frombuffer(f.read(16 + n * 784), np.uint8, offset=16)
    with gzip.open(f"{FASHION}/train-labels-idx1-ubyte.gz") as f:
        y = np.frombuffer(f.read(8 + n), np.uint8, offset=8)
    x = (torch.from_numpy(x.copy()).float() / 255 - 0.2860) / 0.3530
    return x.reshape(n, 784), torch.from_numpy(y.astype("int64"))


def mlp(batch, steps):
    """Losses of the first steps, on the training set in the order of its file."""
    x, y = fashion(batch * steps)
    net = torch.nn.Sequential(
        torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256),
        torch.nn.ReLU(), torch.nn.Linear(256, 10),
    )
    for index, p in enumerate(net.parameters()):
        fan_in = net[index // 2 * 2].in_features
        p.data = values(16 + index, tuple(p.shape), bound(fan_in))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.01)
    for s in range(steps):
        part = slice(s * batch, (s + 1) * batch)
        loss = F.cross_entropy(net(x[part]), y[part])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = struct.unpack("<I", struct.pack("<f", loss.item()))[0]
        print(f"mlp {batch} {s} 0 loss 1 1 {loss.item():.9g}\n{value:08x}")


def main():
    for shape in ((1, 1, 1), (7, 13, 11), (33, 17, 129), (64, 784, 512)):
        linear(*shape)
    for shape in ((1, 5), (7, 13), (33, 129)):
        relu(*shape)
    for shape in ((1, 2), (7, 13), (64, 10), (5, 1001)):
        softmax_cross_entropy(*shape)
    mlp(batch=128, steps=5)


if __name__ == "__main__":
    main()
