#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Times training steps of Cadre against PyTorch's, on one host with two cores.

    bench/train/compare.py [--rows mlp-128,gpt] [--rounds 2] [--seconds 2]
                           [--cadre build/release/bin/cadre] [--openmp-blas FILE]
                           [--bf16]
    bench/train/compare.py --losses 200 [--runs 1] [--rows mlp-128,gpt] [--bf16]

Contestants of a row take turns, A B C A B C ..., each for some steps that take
about --seconds; a round's number is the median step, and the table shows the
median over rounds. Cadre: 1 rank, and 2 ranks as ddp and zero1, the latter
also each bound to a core, one thread each, two leaves in all. PyTorch: one
process with 1 and with 2 threads, the latter also with OpenBLAS built for
OpenMP if it is there (libopenblas0-openmp), and DistributedDataParallel over
gloo with two processes of one thread, free and each bound to a core, for
convolutions with images as they are and channels-last. All train f32 with
AdamW on the same data; with --bf16 Cadre has train.precision=bf16, and PyTorch
autocast. PyTorch's processes stay, asleep, from turn to turn.

Both make the first steps from the same weights on the same batches too, and
their losses stand in the table. A product of matrices, timed in between, says
what the cores can do, and a cache line sent to and fro before each turn, how
far they are from each other. With --losses nothing is timed: both make so many
steps, and what they lost in the last 21 is compared; the runs, if there are
more, have rates a 1e-7th apart, since a net with batch norm turns such a
difference into percents; in bf16 a thousandth, since less of it is rounded
away. The tables go to standard output and to build/train/table.md. Cells that
lose are bold. Needs Debian's python3-torch, libopenblas0-pthread, bible-kjv
and dataset-fashion-mnist.
"""
import argparse
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from rows import ROWS, operations

HERE = pathlib.Path(__file__).resolve().parent
BUILD = HERE.parent.parent / "build" / "train"
OPENMP_BLAS = "/usr/lib/x86_64-linux-gnu/openblas-openmp/libopenblas.so.0"
LIMIT_S = 900
WARM_UP = 5           # steps that Cadre's summary leaves out
COMPARED = 5          # losses
LEAST = 1.05          # Cadre's best over PyTorch's best
MOST_APART = {"f32": 0.01, "bf16": 0.02}  # means of losses
RATE_STEP = {"f32": 1e-7, "bf16": 1e-3}  # from run to run, as a part of it
MB = 1e6

PROBE = r"""
import time, torch
torch.set_num_threads(1)
a, b = torch.rand(2, 1024, 1024, dtype=torch.DTYPE)
end = time.perf_counter() + 1
best = 9
while time.perf_counter() < end:
    begin = time.perf_counter()
    torch.mm(a, b)
    best = min(best, time.perf_counter() - begin)
print(2 * 1024**3 / best)
"""


def environment(**more):
    env = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    return env | more


class Cadre:
    def __init__(self, args, row, title, *arguments, leaves=2):
        self.args, self.row, self.title = args, row, title
        self.leaves = leaves
        self.arguments = arguments

    def command(self, folder, *arguments):
        keys = [f"train.global_batch={self.row.batch}",
                f"parallel.leaves={self.leaves}",
                f"train.precision={self.args.precision}",
                *self.row.keys]
        sets = [word for key in keys for word in ("--set", key)]
        return [self.args.cadre, "train", self.row.recipe, "--threads", "1",
                "--quiet", "--json", "--out", folder, *sets, *arguments]

    def run(self, n_steps, *arguments):
        """Some steps, without the evaluation that follows a run's last."""
        with tempfile.TemporaryDirectory(prefix="cadre-bench-") as folder:
            out = pathlib.Path(folder) / "run"
            process = subprocess.Popen(
                self.command(out, "--steps", "100000", *arguments),
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env=environment(), text=True)
            try:
                wait_for_step(process, out / "metrics.jsonl", n_steps)
                process.send_signal(signal.SIGINT)
                text, _ = process.communicate(timeout=LIMIT_S)
            finally:
                process.kill()
            lines = (out / "metrics.jsonl").read_text().splitlines()
            if json.loads(text)["precision"] != self.args.precision:
                raise SystemExit(f"Cadre does not compute in "
                                 f"{self.args.precision} on this processor")
            return json.loads(text), [json.loads(line) for line in lines], (
                (out / "model.safetensors").read_bytes())

    def turn(self, n_steps):
        n = n_steps + WARM_UP
        summary, _, _ = self.run(
            n, "--set", f"train.log_every={n}", *self.arguments)
        return {"median_ms": summary["step_ms_median"],
                "parts_ms": summary["step_parts_ms"],
                "peak_bytes": summary["peak_rss_bytes"]}

    def close(self):
        pass


def wait_for_step(process, path, n_steps):
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline and process.poll() is None:
        if path.exists() and any(
                json.loads(line).get("step", 0) >= n_steps
                for line in path.read_text().splitlines(keepends=True)
                if line.endswith("\n")):
            return
        time.sleep(0.02)
    raise RuntimeError(f"{process.args} made no {n_steps} steps")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def bind_to(core):
    return lambda: os.sched_setaffinity(0, {core})


class Torch:
    def __init__(self, args, name, title, *arguments, ranks=1, threads=1,
                 preload=None, bound=False):
        self.title = title
        env = environment(OMP_NUM_THREADS=str(threads))
        if preload:
            env["LD_PRELOAD"] = preload
        port = str(free_port())
        self.processes = [
            subprocess.Popen(
                [args.python, HERE / "torch_step.py", name, "--threads",
                 str(threads), "--rank", str(rank), "--world", str(ranks),
                 "--port", port, "--precision", args.precision, *arguments],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, env=env, text=True,
                preexec_fn=bind_to(rank) if bound else None)
            for rank in range(ranks)]

    def ask(self, what):
        for p in self.processes:
            print(what, file=p.stdin, flush=True)
        lines = [p.stdout.readline() for p in self.processes]
        if not all(lines):
            raise RuntimeError(f"PyTorch ({self.title}) ended at '{what}'")
        return [json.loads(line) for line in lines]

    def turn(self, n_steps):
        answers = self.ask(f"steps {n_steps}")
        slowest = max(answers, key=lambda a: a["median_ms"])
        return slowest | {"peak_bytes": max(a["peak_bytes"] for a in answers)}

    def close(self):
        for p in self.processes:
            p.stdin.close()
        for p in self.processes:
            try:
                p.wait(timeout=10)
            except subprocess.TimeoutExpired:
                p.kill()


def contestants(args, name):
    row = ROWS[name]
    found = [
        Cadre(args, row, "Cadre 1x1", "-n", "1"),
        Cadre(args, row, "Cadre 2x1", "-n", "2"),
        Cadre(args, row, "Cadre 2x1 zero1", "-n", "2", "--set",
              "parallel.mode=zero1"),
        Cadre(args, row, "Cadre 2x1 zero1, bound", "-n", "2", "--bind", "core",
              "--set", "parallel.mode=zero1"),
        Torch(args, name, "torch 1x1"),
        Torch(args, name, "torch 1x2", threads=2),
        Torch(args, name, "DDP 2x1", ranks=2),
        Torch(args, name, "DDP 2x1, bound", ranks=2, bound=True),
    ]
    if os.path.exists(args.openmp_blas):
        found.append(Torch(args, name, "torch 1x2, OpenMP BLAS", threads=2,
                           preload=args.openmp_blas))
    if row.convolves:
        found.append(Torch(args, name, "DDP 2x1, channels-last",
                           "--channels-last", ranks=2))
    return found


def probe(args):
    """FLOP/s of two cores at once."""
    dtype = {"f32": "float32", "bf16": "bfloat16"}[args.precision]
    both = [subprocess.Popen([args.python, "-c", PROBE.replace("DTYPE", dtype)],
                             stdout=subprocess.PIPE, text=True,
                             env=environment(OMP_NUM_THREADS="1"))
            for _ in range(2)]
    return sum(float(p.communicate(timeout=LIMIT_S)[0]) for p in both)


def build_core_line():
    subprocess.run(["cc", "-O2", "-pthread", "-o", BUILD / "core_line",
                    HERE.parent / "peers" / "core_line.c"], check=True)


def core_line():
    """How long a cache line takes between the cores, in ns: on a virtual machine
    that changes within seconds."""
    return int(subprocess.run([BUILD / "core_line"], capture_output=True,
                              text=True, check=True, timeout=LIMIT_S).stdout)


def losses_of(args, name, n_steps, rates=(1e-3,)):
    """Of Cadre and of PyTorch, from the same weights on the same batches: those
    of a run at each of the rates."""
    row = ROWS[name]
    # Statistics of batch norm are a leaf's, so there is one.
    cadre = Cadre(args, row, "", leaves=1)
    keys = ["train.log_every=1", "optim.schedule=constant",
            "optim.warmup_steps=0", "optim.clip=0", "optim.decay=all",
            "optim.weight_decay=0.01"]
    sets = [word for key in keys for word in ("--set", key)]
    _, _, start = cadre.run(1, *sets, "--set", "optim.lr=0")
    ours = []
    for rate in rates:
        _, lines, _ = cadre.run(n_steps, *sets, "--set", f"optim.lr={rate!r}")
        ours.append([line["loss"] for line in lines if "loss" in line][:n_steps])
    with tempfile.NamedTemporaryFile() as weights:
        weights.write(start)
        weights.flush()
        torch = Torch(args, name, "losses", "--weights", weights.name, threads=2)
        try:
            theirs = [torch.ask(f"losses {n_steps} {rate!r}")[0]["losses"]
                      for rate in rates]
        finally:
            torch.close()
    return ours, theirs


def same_losses(args, name):
    """The largest relative difference of the first losses."""
    (ours,), (theirs,) = losses_of(args, name, COMPARED)
    return max(abs(a - b) / b for a, b in zip(ours, theirs, strict=True))


def late_losses(args):
    """A line per row: means of the last losses, and the range of runs."""
    print("| loss, mean of the last 21 steps | Cadre | runs | PyTorch | runs "
          "| apart |\n|---|---|---|---|---|---|")
    step = RATE_STEP[args.precision]
    rates = [1e-3 * (1 + run * step) for run in range(args.runs)]
    for name in args.rows.split(","):
        cells, means = [], []
        for runs in losses_of(args, name, args.losses, rates):
            ends = [statistics.fmean(losses[-21:]) for losses in runs]
            means.append(statistics.fmean(ends))
            cells += [f"{means[-1]:.6f}", f"{min(ends):.4f} to {max(ends):.4f}"]
        apart = abs(means[0] - means[1]) / means[1]
        loses = apart > MOST_APART[args.precision]
        cells.append(bold(f"{apart * 100:.3f} %", loses))
        print(f"| {ROWS[name].title} | {' | '.join(cells)} |", flush=True)


def steps_for(args, contestant):
    """Steps that take about as long as a turn shall."""
    ms = contestant.turn(3)["median_ms"]
    return min(max(int(args.seconds * 1e3 / ms), 3), 2000)


def measure(args, name):
    """Of each contestant: its turns, a round each."""
    everybody = contestants(args, name)
    try:
        steps = [steps_for(args, c) for c in everybody]
        turns = {c.title: [] for c in everybody}
        peaks = []
        for _ in range(args.rounds):
            peaks.append(probe(args))
            for c, n in zip(everybody, steps):
                line_ns = core_line()
                turns[c.title].append({**c.turn(n), "line_ns": line_ns})
        return turns, max(peaks)
    finally:
        for c in everybody:
            c.close()


def median_of(turns, field="median_ms"):
    return statistics.median(t[field] for t in turns)


def bold(text, loses):
    return f"**{text}**" if loses else text


def best(medians, prefix):
    return min(((ms, title) for title, ms in medians.items()
                if title.startswith(prefix)), default=(float("nan"), "-"))


def times_line(args, row, medians, difference):
    """Steps, and how Cadre's compare."""
    cadre, theirs = best(medians, "Cadre"), min(
        best(medians, "torch"), best(medians, "DDP"))
    two = best(medians, "Cadre 2x1")
    ddp = best(medians, "DDP")
    cells = [f"{medians[t]:.2f}" if t in medians else "" for t in (
        "Cadre 1x1", "Cadre 2x1", "Cadre 2x1 zero1", "Cadre 2x1 zero1, bound",
        "torch 1x1", "torch 1x2", "torch 1x2, OpenMP BLAS", "DDP 2x1", "DDP 2x1, bound",
        "DDP 2x1, channels-last")]
    against_ddp, against_best = ddp[0] / two[0], theirs[0] / cadre[0]
    wanted = row.wanted.get(args.precision, 0)
    cells.append(bold(f"{against_ddp:.2f}", against_ddp < wanted) +
                 (f" ({wanted:g})" if wanted else ""))
    cells.append(bold(f"{against_best:.2f}", against_best < LEAST))
    cells.append(f"{medians['Cadre 1x1'] / two[0]:.2f}")
    cells.append(difference)
    return f"| {row.title} | " + " | ".join(cells) + " |"


def memory_line(row, turns, medians, peak):
    """Where the time of Cadre's two ranks goes, memory, and use of the cores."""
    _, two = best(medians, "Cadre 2x1")
    parts = turns[two][-1]["parts_ms"]
    cells = [f"{parts[p]:.2f}" for p in (
        "data", "forward", "backward", "exposed", "optimizer")]
    for title in (two, best(medians, "DDP")[1]):
        share = operations(row) / (medians[title] * 1e-3) / peak
        cells.append(f"{share * 100:.0f} %")
    ours = max(t["peak_bytes"] for t in turns[two])
    ddp = max(t["peak_bytes"] for t in turns["DDP 2x1"])
    limit = 0.25 if row.kind != "gpt" else 0.6
    cells += [f"{ours / MB:.0f}", f"{ddp / MB:.0f}",
              bold(f"{ours / ddp * 100:.0f} %", ours / ddp > limit),
              ", ".join(str(t["line_ns"]) for t in turns[two])]
    return f"| {row.title} | " + " | ".join(cells) + " |"


TIMES_HEAD = """\
| step, ms | Cadre 1x1 | 2x1 | 2x1 zero1 | bound | torch 1x1 | 1x2 | 1x2, OpenMP BLAS \
| DDP 2x1 | bound | channels-last | DDP / Cadre 2x1 (wanted) | best / best \
| Cadre 1x1 / 2x1 | losses differ by |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
"""
PARTS_HEAD = """\
| Cadre 2x1, ms | data | forward | backward | exposed | optimizer \
| of the peak | DDP's | rank's memory, MB | DDP's | of DDP's | line, ns |
|---|---|---|---|---|---|---|---|---|---|---|---|
"""


def known_recipes(args):
    done = subprocess.run([args.cadre, "train", "no-such-recipe"],
                          capture_output=True, text=True)
    return done.stderr


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--cadre", default="build/release/bin/cadre")
    p.add_argument("--python", default="/usr/bin/python3", help="has torch")
    p.add_argument("--rows", default=",".join(ROWS))
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--seconds", type=float, default=2.0)
    p.add_argument("--openmp-blas", default=OPENMP_BLAS)
    p.add_argument("--losses", type=int, metavar="STEPS")
    p.add_argument("--runs", type=int, default=1, help="of --losses")
    p.add_argument("--bf16", action="store_const", dest="precision",
                   const="bf16", default="f32")
    args = p.parse_args()
    if args.losses:
        late_losses(args)
        return

    recipes = known_recipes(args)
    times, parts = "", ""
    BUILD.mkdir(parents=True, exist_ok=True)
    build_core_line()
    for name in args.rows.split(","):
        row = ROWS[name]
        if row.recipe not in recipes:
            print(f"{row.title}: this cadre has no {row.recipe}", file=sys.stderr)
            continue
        began = time.monotonic()
        turns, peak = measure(args, name)
        try:
            difference = f"{same_losses(args, name):.0e}"
        except RuntimeError as failure:
            print(failure, file=sys.stderr)
            difference = "not compared"
        medians = {title: median_of(t) for title, t in turns.items()}
        times += times_line(args, row, medians, difference) + "\n"
        parts += memory_line(row, turns, medians, peak) + "\n"
        print(f"{row.title}: {time.monotonic() - began:.0f} s, two cores make "
              f"{peak / 1e9:.0f} GFLOP/s", file=sys.stderr)
        (BUILD / "table.md").write_text(
            f"{TIMES_HEAD}{times}\n{PARTS_HEAD}{parts}")
    print((BUILD / "table.md").read_text())


if __name__ == "__main__":
    main()
