#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of PyTorch that trains a row of the table when it is told to.

    torch_step.py ROW --threads T [--rank R --world N --port P]
                  [--channels-last] [--precision bf16] [--weights FILE]

Reads a line from standard input, does it, answers with a line of JSON:

    steps N         makes N steps: median ms, ms of each part, peak memory
    losses N RATE   makes N steps at the rate from the weights in FILE, as Cadre
                    names them, on the batches that Cadre takes: their losses

It ends with its input.  Settings are those of compare.py.
"""
import argparse
import contextlib
import gzip
import json
import math
import os
import resource
import statistics
import struct
import subprocess
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import order
from rows import BYTES, CLASSES, ROWS

FASHION = "/usr/share/datasets/fashion-mnist/train-"
PARTS = ("data", "forward", "backward", "optimizer")


class Block(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        # Not a buffer, which DDP would send around.
        self.hidden = torch.triu(torch.ones(context, context, dtype=torch.bool), 1)

    def attend(self, x):
        n, t, width = x.shape
        q, k, v = (part.view(n, t, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(x).chunk(3, dim=2))
        scores = q @ k.transpose(2, 3) / math.sqrt(width // self.heads)
        shares = scores.masked_fill(self.hidden, -math.inf).softmax(dim=3)
        return self.proj((shares @ v).transpose(1, 2).reshape(n, t, width))

    def forward(self, x):
        x = x + self.attend(self.ln1(x))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class Gpt(nn.Module):
    def __init__(self, layers, width, heads, context):
        super().__init__()
        self.tok, self.pos = nn.Embedding(BYTES, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(
            *(Block(width, heads, context) for _ in range(layers)))
        self.ln = nn.LayerNorm(width)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, x):
        x = self.blocks(self.tok(x) + self.pos.weight)
        return F.linear(self.ln(x), self.tok.weight)


class Basic(nn.Module):
    """A block of ResNet-18."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.branch = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs))
        self.past = nn.Identity() if stride == 1 and inputs == outputs else (
            nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                          nn.BatchNorm2d(outputs)))

    def forward(self, x):
        return F.relu(self.branch(x) + self.past(x))


def resnet18(width):
    layers = [nn.Conv2d(1, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width),
              nn.ReLU()]
    inputs = width
    for stage in range(4):
        for block in range(2):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(Basic(inputs, width << stage, stride))
            inputs = width << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(inputs, CLASSES))


def conv(inputs, outputs, kernel, padding):
    return nn.Conv2d(inputs, outputs, kernel, padding=padding), nn.ReLU()


def build(row):
    if row.kind == "gpt":
        return Gpt(*row.sizes)
    if row.kind == "resnet18":
        return resnet18(16)
    if row.kind == "mlp":
        return nn.Sequential(
            nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256),
            nn.ReLU(), nn.Linear(256, CLASSES))
    if row.kind == "lenet":
        return nn.Sequential(
            *conv(1, 6, 5, 2), nn.MaxPool2d(2), *conv(6, 16, 5, 0),
            nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(),
            nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, CLASSES))
    return nn.Sequential(
        *conv(1, 32, 3, 1), *conv(32, 32, 3, 1), nn.MaxPool2d(2),
        *conv(32, 64, 3, 1), *conv(64, 64, 3, 1), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(3136, 128), nn.ReLU(), nn.Linear(128, CLASSES))


def safetensors(path):
    """A file's tensors of f32, in the file's order of bytes."""
    with open(path, "rb") as f:
        data = f.read()
    length = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8 : 8 + length])
    head.pop("__metadata__", None)
    body = memoryview(data)[8 + length :]
    return {
        name: torch.from_numpy(
            np.frombuffer(body[slice(*t["data_offsets"])], "<f4").copy()
        ).reshape(t["shape"])
        for name, t in sorted(head.items(), key=lambda i: i[1]["data_offsets"])}


def load(model, row, path):
    """Names are the same in a GPT; elsewhere the order of parameters is."""
    theirs = {name: t for name, t in safetensors(path).items()
              if ".running_" not in name}
    own = dict(model.named_parameters())
    if row.kind != "gpt":
        theirs = dict(zip(own, theirs.values(), strict=True))
    for name, p in own.items():
        assert p.shape == theirs[name].shape, name
        p.data.copy_(theirs[name])


def idx(name, header_bytes, *shape):
    """A file's bytes, in memory once."""
    with gzip.open(FASHION + name) as f:
        f.read(header_bytes)
        x = np.empty(shape, np.uint8)
        view = memoryview(x).cast("B")
        done = 0
        while done < len(view):
            done += f.readinto(view[done : done + (1 << 20)])
    return torch.from_numpy(x)


class Images:
    def __init__(self):
        self.n = 60000
        self.x = idx("images-idx3-ubyte.gz", 16, self.n, 1, 28, 28)
        self.y = idx("labels-idx1-ubyte.gz", 8, self.n).long()

    def take(self, index):
        return (self.x[index].float() / 255 - 0.2860) / 0.3530, self.y[index]


class Text:
    def __init__(self, context):
        text = subprocess.run(["bible", "-f", "Gen1:1-Rev22:21"],
                              capture_output=True, check=True).stdout
        text = np.frombuffer(text, np.uint8)[: len(text) * 95 // 100]
        self.n = (len(text) - 1) // context
        self.x = torch.from_numpy(
            text[: self.n * context].reshape(self.n, context).astype("int64"))
        self.y = torch.from_numpy(
            text[1 : self.n * context + 1].reshape(self.n, context)
            .astype("int64"))

    def take(self, index):
        return self.x[index], self.y[index]


class Trainer:
    def __init__(self, row, args):
        self.row, self.args = row, args
        self.data = Text(row.sizes[3]) if row.kind == "gpt" else Images()
        self.generator = torch.Generator().manual_seed(1)
        self.order, self.at = None, self.data.n
        self.reset(1e-3)

    def reset(self, rate):
        torch.manual_seed(1)
        self.model = build(self.row)
        if self.args.weights:
            load(self.model, self.row, self.args.weights)
        if self.args.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)
        self.net = self.model
        if self.args.world > 1:
            self.net = nn.parallel.DistributedDataParallel(
                self.model, gradient_as_bucket_view=True)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=rate, weight_decay=1e-2)

    def shuffled(self):
        """This rank's samples of the next batch; all ranks shuffle alike."""
        if self.at + self.row.batch > self.data.n:
            self.order = torch.randperm(self.data.n, generator=self.generator)
            self.at = 0
        index = self.order[self.at : self.at + self.row.batch]
        self.at += self.row.batch
        return index[self.args.rank :: self.args.world]

    def step(self, index, spent):
        marks = [time.perf_counter()]
        x, y = self.data.take(index() if callable(index) else index)
        if self.args.channels_last:
            x = x.to(memory_format=torch.channels_last)
        marks.append(time.perf_counter())
        with torch.autocast("cpu", torch.bfloat16,
                            enabled=self.args.precision == "bf16"):
            scores = self.net(x)
        loss = F.cross_entropy(scores.float().flatten(0, -2), y.flatten())
        marks.append(time.perf_counter())
        self.optimizer.zero_grad(set_to_none=self.args.world == 1)
        loss.backward()
        marks.append(time.perf_counter())
        self.optimizer.step()
        marks.append(time.perf_counter())
        for part, begin, end in zip(PARTS, marks, marks[1:]):
            spent[part] += end - begin
        return loss, marks[-1] - marks[0]

    def steps(self, n):
        spent = dict.fromkeys(PARTS, 0.0)
        times = [self.step(self.shuffled, spent)[1] for _ in range(n)]
        return {
            "median_ms": statistics.median(times) * 1e3,
            "parts_ms": {k: v / n * 1e3 for k, v in spent.items()},
            "peak_bytes":
                resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }

    def losses(self, n, rate):
        self.reset(float(rate))
        spent = dict.fromkeys(PARTS, 0.0)
        found = []
        for step in range(n):
            index = order.batch(step, self.row.batch, self.data.n)
            found.append(self.step(index, spent)[0].item())
        return {"losses": found}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("row", choices=ROWS)
    p.add_argument("--threads", type=int, required=True)
    p.add_argument("--rank", type=int, default=0)
    p.add_argument("--world", type=int, default=1)
    p.add_argument("--port", type=int)
    p.add_argument("--channels-last", action="store_true")
    p.add_argument("--precision", choices=("f32", "bf16"), default="f32")
    p.add_argument("--weights")
    args = p.parse_args()

    # What libraries print must not mix with answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(args.threads)
    if args.world > 1:
        dist.init_process_group(
            "gloo", init_method=f"tcp://127.0.0.1:{args.port}",
            rank=args.rank, world_size=args.world)
    trainer = Trainer(ROWS[args.row], args)
    verbs = {"steps": trainer.steps, "losses": trainer.losses}
    with contextlib.suppress(KeyboardInterrupt):
        for line in sys.stdin:
            verb, n, *rest = line.split()
            print(json.dumps(verbs[verb](int(n), *rest)), file=answers,
                  flush=True)
    answers.flush()
    os._exit(0)  # gloo's threads may wait for a rank that has gone


if __name__ == "__main__":
    main()
