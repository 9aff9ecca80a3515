#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times a collective of Cadre's against Open MPI's and MPICH's, on one host.

    bench/peers/compare.py [--op allreduce] [--ranks 2] [--sizes 64K,1M,64M]
                           [--rounds 5] [--cadre build/release/bin/cadre]

Contestants take turns at each size, A B C D A B C D ..., and medians over the
rounds are reported: Cadre with arena buffers and with the program's own, and
each MPI that is installed (Debian: libopenmpi-dev openmpi-bin, libmpich-dev
mpich), at its best known setting.  All are f32 sums in place, with ranks bound
to the same cores and the same number of calls; all rewrite their buffers before
every call, wait in a barrier, count the slowest rank, and check every element.

Beside each point stands the round trip of a cache line between two cores, since
a virtual machine's cores move, and how busy other programs kept the machine.
The table goes to standard output and to build/peers/OP-RANKS.md.
"""
import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.join(os.path.dirname(os.path.dirname(HERE)), "build", "peers")
PACKAGES = {"openmpi": "libopenmpi-dev openmpi-bin",
            "mpich": "libmpich-dev mpich"}
NAMES = {"openmpi": "Open MPI", "mpich": "MPICH"}
WARM_UPS = 5
LIMIT_S = 300
MOVED = 2  # round trips further apart than this are of different places


class Wrong(Exception):
    """A contestant's result is wrong, or it says nothing that makes sense."""


def iterations(nbytes):
    """As `cadre bench` chooses: 256 MiB in all, but from 10 to 500 calls."""
    return min(max((256 << 20) // nbytes, 10), 500)


def build(compiler, source, name, *flags):
    os.makedirs(BUILD, exist_ok=True)
    program = os.path.join(BUILD, name)
    subprocess.run(
        [compiler, "-O3", "-march=native", "-std=c17",
         "-D_POSIX_C_SOURCE=200809L", *flags, os.path.join(HERE, source),
         "-o", program], check=True)
    return program


def installed():
    found = []
    for mpi, packages in PACKAGES.items():
        if shutil.which(f"mpicc.{mpi}") and shutil.which(f"mpirun.{mpi}"):
            found.append(mpi)
        else:
            print(f"{NAMES[mpi]} is not installed (Debian: apt-get install "
                  f"{packages}): it is left out", file=sys.stderr)
    return found


def mpi_command(mpi, ranks, cores):
    """How its ranks are started and bound; and variables."""
    crowded = ranks > cores
    if mpi == "openmpi":
        place = (["--map-by", "core:OVERSUBSCRIBE", "--bind-to",
                  "core:overload-allowed", "--mca", "mpi_yield_when_idle", "1"]
                 if crowded else ["--map-by", "core", "--bind-to", "core"])
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1",
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return (["mpirun.openmpi", "-np", str(ranks), *place],
                root if os.geteuid() == 0 else {})
    return (["mpirun.mpich", "-np", str(ranks), "-bind-to", "core"],
            {"MPIR_CVAR_POLLS_BEFORE_YIELD": "1"} if crowded else {})


def contestants(args, cores):
    """Name: what makes a command of a size, and the environment."""
    def cadre(buffers):
        return lambda nbytes: [
            args.cadre, "bench", args.op, "-n", str(args.ranks), "-b",
            str(nbytes), "-e", str(nbytes), "-w", str(WARM_UPS), "-i",
            str(iterations(nbytes)), "--buffers", buffers, "--transport",
            args.transport, "--bind", "core", "--json"]

    def peer(start, program):
        return lambda nbytes: [*start, program, args.op, str(nbytes),
                               str(WARM_UPS), str(iterations(nbytes))]

    found = {"Cadre, arena": (cadre("arena"), {}),
             "Cadre, user": (cadre("user"), {})}
    for mpi in installed():
        program = build(f"mpicc.{mpi}", "mpi_collective.c", f"mpi.{mpi}")
        start, more = mpi_command(mpi, args.ranks, cores)
        found[NAMES[mpi]] = (peer(start, program), more)
    return found


def line_ns(probe):
    """The round trip of a cache line; None with a single core."""
    done = subprocess.run([probe], capture_output=True, text=True, check=False)
    return float(done.stdout) if done.returncode == 0 else None


def processor_s():
    """Seconds of all cores so far: busy, and in all."""
    with open("/proc/stat", encoding="ascii") as f:
        ticks = [int(n) for n in f.readline().split()[1:9]]
    idle = ticks[3] + ticks[4]
    per_s = os.sysconf("SC_CLK_TCK")
    return (sum(ticks) - idle) / per_s, sum(ticks) / per_s


def children_s():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(command, more):
    """One measurement: the JSON line that it prints; None if it never ends."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env={**os.environ, **more})
    try:
        output, errors = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        print(f"not done in {LIMIT_S} s: {' '.join(command)}", file=sys.stderr)
        process.terminate()  # a launcher ends its ranks
        process.communicate()
        return None
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if process.returncode != 0 or len(lines) != 1:
        raise Wrong(f"status {process.returncode}: {' '.join(command)}\n"
                    f"{output}{errors}")
    row = json.loads(lines[0])
    if row["wrong"] != 0:
        raise Wrong(f"{row['wrong']} wrong elements: {' '.join(command)}")
    return row


def measure(command, more, probe):
    """(median us, transport, ns of a line, share of others), or None."""
    before = line_ns(probe)
    busy, total, own = *processor_s(), children_s()
    row = run(command, more)
    own = children_s() - own
    busy, total = (b - a for a, b in zip((busy, total), processor_s()))
    after = line_ns(probe)
    if row is None:
        return None
    others = max(busy - own, 0) / max(total, 1e-9)
    line = None if before is None else max(before, after)
    return row["median_us"], row.get("transport"), line, others


def number(value):
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def size_text(nbytes):
    for shift, unit in ((20, "MiB"), (10, "KiB")):
        if nbytes >> shift and nbytes % (1 << shift) == 0:
            return f"{nbytes >> shift} {unit}"
    return f"{nbytes} B"


def time_cell(points):
    us = [point[0] for point in points]
    if not us:
        return "-"
    return (f"{number(statistics.median(us))} "
            f"({number(min(us))}-{number(max(us))})")


def place_cell(points):
    """Where the cores lay to each other, and whether they moved meanwhile."""
    lines = [point[2] for point in points if point[2] is not None]
    if not lines:
        return "-"
    moved = " moved" if max(lines) > MOVED * min(lines) else ""
    return f"{min(lines):.0f}-{max(lines):.0f}{moved}"


def others_cell(points):
    if not points:
        return "-"
    return f"{100 * statistics.median(p[3] for p in points):.0f} %"


class Table:
    """Collects points and writes them down as Markdown."""

    def __init__(self, names):
        self.ours = [name for name in names if name.startswith("Cadre")]
        self.peers = [name for name in names if name not in self.ours]
        self.rows = []
        self.losses = []
        self.transports = set()

    def ratio_cell(self, size, name, points):
        """The best peer's time over Cadre's; bold where Cadre loses."""
        peers = {peer: statistics.median(p[0] for p in points[peer])
                 for peer in self.peers if points[peer]}
        if not peers or not points[name]:
            return "-"
        best = min(peers, key=peers.get)
        ratio = peers[best] / statistics.median(p[0] for p in points[name])
        if ratio >= 1:
            return f"{ratio:.2f}"
        self.losses.append(f"{size_text(size)}, {name}: {best} is "
                           f"{1 / ratio:.2f} times as fast")
        return f"**{ratio:.2f}**"

    def add(self, size, points):
        every = [p for name in points for p in points[name]]
        self.transports |= {p[1] for p in every if p[1]}
        cells = [size_text(size),
                 *(time_cell(points[name]) for name in self.ours + self.peers),
                 *(self.ratio_cell(size, name, points) for name in self.ours),
                 place_cell(every), others_cell(every)]
        self.rows.append("| " + " | ".join(cells) + " |")

    def text(self, title):
        head = ["size", *(f"{name}, us" for name in self.ours + self.peers),
                *(f"best peer / {name}" for name in self.ours), "line, ns",
                "others"]
        lines = [title, "", "| " + " | ".join(head) + " |",
                 "|" + "---|" * len(head), *self.rows]
        if self.losses:
            lines += ["", "Cadre loses:", "", *(f"- {x}" for x in self.losses)]
        return "\n".join(lines) + "\n"


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        names = [line.split(":", 1)[1].strip() for line in f
                 if line.startswith("model name")]
    return names[0] if names else "unknown processor"


def size_of(text):
    shift = {"K": 10, "M": 20, "G": 30}.get(text[-1:].upper(), 0)
    nbytes = int(text[:-1] if shift else text) << shift
    if nbytes < 4:
        raise ValueError(text)
    return nbytes


def arguments():
    def sizes(text):
        return [size_of(word) for word in text.split(",")]

    def positive(text):
        if int(text) < 1:
            raise ValueError(text)
        return int(text)

    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--op", default="allreduce", choices=(
        "allreduce", "reduce-scatter", "allgather", "broadcast"))
    parser.add_argument("--ranks", type=positive, default=2)
    parser.add_argument("--sizes", type=sizes, help="bytes, such as 64K,1M",
                        default="64K,256K,1M,4M,16M,64M,256M")
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--transport", default="auto", help="Cadre's")
    parser.add_argument("--cadre", default="build/release/bin/cadre")
    args = parser.parse_args()
    if not os.access(args.cadre, os.X_OK):
        parser.error(f"there is no program {args.cadre}: build it with `make`, "
                     "or say where it is with --cadre")
    return args


def main():
    args = arguments()
    cores = len(os.sched_getaffinity(0))
    probe = build("cc", "core_line.c", "core_line", "-pthread")
    fields = contestants(args, cores)
    table = Table(list(fields))
    for size in args.sizes:
        points = {name: [] for name in fields}
        for turn in range(args.rounds):
            for name, (command, more) in fields.items():
                point = measure(command(size), more, probe)
                if point is not None:
                    points[name].append(point)
                    print(f"{size_text(size)}, round {turn + 1}: {name}: "
                          f"{number(point[0])} us", file=sys.stderr)
        table.add(size, points)

    what = "f32 sum" if "reduce" in args.op else "f32"
    text = table.text(
        f"{args.op}, {args.ranks} ranks on {cores} cores of {processor()}; "
        f"{what}, in place; Cadre over {', '.join(sorted(table.transports))}; "
        f"medians of {args.rounds} rounds (from - to)")
    print(text, end="")
    path = os.path.join(BUILD, f"{args.op}-{args.ranks}.md")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    print(f"written to {os.path.relpath(path)}", file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except Wrong as wrong:
        sys.exit(f"compare.py: {wrong}")
