#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times one training step of the MLP 784-512-256-10 against PyTorch's.

    bench/mlp_vs_torch.py [--cadre build/release/bin/cadre] [--rounds 5]

Contestants take turns, A B C A B C ..., and medians are reported: Cadre with
one and with two ranks of one thread each, and PyTorch in one process with one
thread (Debian's python3-torch; run by the interpreter that has it, --python).
Install libopenblas0-pthread beside it: with the reference BLAS that comes first,
PyTorch takes twenty times as long and there is nothing to compare.  All of them train on Fashion-MNIST with AdamW and a global batch of --batch.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

TORCH = r"""
import gzip, statistics, sys, time
import numpy, torch
torch.set_num_threads(1)
torch.manual_seed(1)
batch, steps, warmup = (int(a) for a in sys.argv[1:4])
folder = "/usr/share/datasets/fashion-mnist/train-"
with gzip.open(folder + "images-idx3-ubyte.gz") as f:
    x = numpy.frombuffer(f.read(), numpy.uint8, offset=16).reshape(-1, 784)
with gzip.open(folder + "labels-idx1-ubyte.gz") as f:
    y = numpy.frombuffer(f.read(), numpy.uint8, offset=8)
x = (torch.from_numpy(x.copy()).float() / 255 - 0.2860) / 0.3530
y = torch.from_numpy(y.astype("int64"))
nn = torch.nn
model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256),
                      nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2)
loss_of = nn.CrossEntropyLoss()
order = torch.randperm(len(x))
times = []
for step in range(warmup + steps):
    start = time.perf_counter()
    first = step * batch % (len(x) - batch)
    index = order[first : first + batch]
    optimizer.zero_grad(set_to_none=True)
    loss_of(model(x[index]), y[index]).backward()
    optimizer.step()
    times.append(time.perf_counter() - start)
print(statistics.median(times[warmup:]) * 1e3)
"""


def cadre_step_ms(args, ranks):
    """Median step of a run with this many ranks, from its summary.json."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "run")
        command = [
            args.cadre, "train", "mlp-fashion", "-n", str(ranks), "--threads", "1",
            "--steps", str(args.steps + args.warmup), "--quiet", "--out", out,
            "--set", f"train.global_batch={args.batch}", "--set", "parallel.leaves=2",
        ]
        subprocess.run(command, check=True)
        with open(os.path.join(out, "summary.json"), encoding="utf-8") as f:
            return json.load(f)["step_ms_median"]


def torch_step_ms(args):
    env = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    env["OMP_NUM_THREADS"] = "1"
    command = [args.python, "-c", TORCH, str(args.batch), str(args.steps), str(args.warmup)]
    return float(subprocess.run(command, check=True, env=env, capture_output=True).stdout)


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        names = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    return f"{len(names)} x {names[0]}" if names else "unknown processor"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--cadre", default="build/release/bin/cadre")
    parser.add_argument("--python", default="/usr/bin/python3", help="has torch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--warmup", type=int, default=20)
    args = parser.parse_args()

    contestants = {
        "PyTorch, 1 process x 1 thread": lambda: torch_step_ms(args),
        "Cadre, 1 rank x 1 thread": lambda: cadre_step_ms(args, 1),
        "Cadre, 2 ranks x 1 thread": lambda: cadre_step_ms(args, 2),
    }
    times = {name: [] for name in contestants}
    for turn in range(args.rounds):
        for name, run in contestants.items():
            times[name].append(run())
            print(f"round {turn + 1}: {name}: {times[name][-1]:.2f} ms", file=sys.stderr)

    base = statistics.median(times["PyTorch, 1 process x 1 thread"])
    print(f"{processor()}; global batch {args.batch}; AdamW; f32; {args.rounds} rounds\n")
    print("| contestant | median step, ms | from - to | PyTorch's step / this |")
    print("|---|---|---|---|")
    for name, values in times.items():
        median = statistics.median(values)
        print(f"| {name} | {median:.2f} | {min(values):.2f} - {max(values):.2f} "
              f"| {base / median:.2f} |")


if __name__ == "__main__":
    main()
