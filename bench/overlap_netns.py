#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much of the communication overlap hides, between two hosts.

    sudo bench/overlap_netns.py [--cadre build/release/bin/cadre] [--rate 1gbit]

Two network namespaces stand for two hosts, joined by a link whose two ends send
at --rate (token bucket; bench/README.md says how it is set up, and why).  A rank
of one thread in each trains an MLP whose communication takes about as long as
its backward pass.  In turn, A B C D E A B ...:

    compute   each rank alone with its own half of the batch, both at once
    on        both ranks together, overlap on
    comm      an all-reduce of as many bytes as the gradients have
    thread    as on, with a progress thread per rank
    off       both ranks together, overlap off

hidden = 1 - (on - compute) / comm, from the medians over the rounds; likewise for
the others.  Beside it: the least and the most that a single round gives.  Needs
root, iproute2 and as many cores as ranks.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HOSTS = ("cadre0", "cadre1")
ADDRESSES = ("10.207.113.1", "10.207.113.2")
PORT = 29000


def sh(command):
    subprocess.run(command.split(), check=True)


def make_link(rate):
    # A bucket of four of the largest segments, so that none is cut in software,
    # and the congestion control that is the kernel's default, whatever this
    # machine is set to: another may pace by a timer of its own.
    for host in HOSTS:
        sh(f"ip netns add {host}")
    sh(f"ip link add veth0 netns {HOSTS[0]} type veth peer veth0 netns {HOSTS[1]}")
    for host, address in zip(HOSTS, ADDRESSES):
        sh(f"ip -n {host} link set lo up")
        sh(f"ip -n {host} addr add {address}/24 dev veth0")
        sh(f"ip -n {host} link set veth0 up")
        sh(f"tc -n {host} qdisc add dev veth0 root tbf rate {rate} burst 256kb latency 100ms")
        sh(f"ip -n {host} route replace 10.207.113.0/24 dev veth0 src {address} congctl cubic")


def remove_link():
    for host in HOSTS:
        subprocess.run(["ip", "netns", "del", host], stderr=subprocess.DEVNULL)


def on_both(secret, command_of, together):
    """Runs a command on both hosts at once; returns what rank 0 printed."""
    ranks = []
    for rank, host in enumerate(HOSTS):
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        if together:
            environment.update(
                RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1",
                MASTER_ADDR=ADDRESSES[0], MASTER_PORT=str(PORT), CADRE_SECRET_FILE=secret)
        command = ["ip", "netns", "exec", host, "taskset", "-c", str(rank), *command_of(rank)]
        ranks.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    output = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode != 0 for rank in ranks):
        sys.exit("a rank failed")
    return output[0]


def train(args, folder, name, together, overlap, thread="false"):
    def command_of(rank):
        share = 1 if together else 2
        # Together, rank 0 writes the run; alone each writes its own.
        out = os.path.join(folder, name if together else f"{name}-{rank}")
        keys = {
            "model.width": args.width, "model.layers": args.layers,
            "train.global_batch": args.batch // share, "parallel.leaves": 2 // share,
            "parallel.overlap": overlap, "parallel.bucket_mb": args.bucket_mb,
            "parallel.progress_thread": thread,
            "optim.name": "sgd",
        }
        command = [args.cadre, "train", "mlp-fashion", "--threads", "1", "--quiet",
                   "--steps", str(args.steps), "--out", out]
        for key, value in keys.items():
            command += ["--set", f"{key}={value}"]
        return command

    on_both(os.path.join(folder, "secret"), command_of, together)
    runs = [name] if together else [f"{name}-0", f"{name}-1"]
    medians = []
    n_bytes = 0
    for run in runs:
        with open(os.path.join(folder, run, "summary.json"), encoding="utf-8") as f:
            summary = json.load(f)
        medians.append(summary["step_ms_median"])
        n_bytes = summary["bytes_sent_per_step"]
    return max(medians), n_bytes


def comm_ms(args, folder, n_bytes):
    text = on_both(
        os.path.join(folder, "secret"),
        lambda rank: [args.cadre, "bench", "allreduce", "-b", str(n_bytes), "-e", str(n_bytes),
                      "-w", "2", "-i", str(args.steps), "-c", "0", "--json"], True)
    return json.loads(text.splitlines()[0])["median_us"] / 1e3


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        names = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    return f"{len(names)} x {names[0]}" if names else "unknown processor"


def measure(args):
    times = {"compute": [], "on": [], "comm": [], "thread": [], "off": []}
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "secret"), "wb", opener=lambda p, f: os.open(p, f, 0o600)) as f:
            f.write(os.urandom(32))
        for i in range(args.rounds):
            times["compute"].append(train(args, folder, f"compute{i}", False, "off")[0])
            step, n_bytes = train(args, folder, f"on{i}", True, "on")
            times["on"].append(step)
            times["comm"].append(comm_ms(args, folder, n_bytes))
            times["thread"].append(train(args, folder, f"thread{i}", True, "on", "true")[0])
            times["off"].append(train(args, folder, f"off{i}", True, "off")[0])
            print(f"round {i + 1} of {args.rounds}", file=sys.stderr)
    return times, n_bytes


def hidden(both, compute, comm):
    return 1 - (both - compute) / comm


def show(args, times, n_bytes):
    median = {name: statistics.median(values) for name, values in times.items()}
    print(f"{processor()}; link {args.rate} each way; MLP of {args.layers} hidden layers of "
          f"{args.width}, batch {args.batch}; {n_bytes} bytes sent per rank and step; "
          f"medians of {args.rounds} rounds\n")
    print("| | ms | from - to |\n| --- | --- | --- |")
    for name, values in times.items():
        print(f"| {name} | {median[name]:.1f} | {min(values):.1f} - {max(values):.1f} |")
    for name in ("on", "thread", "off"):
        single = [hidden(*of) for of in zip(times[name], times["compute"], times["comm"])]
        print(f"\nhidden, {name}: {hidden(median[name], median['compute'], median['comm']):.1%} "
              f"(single rounds {min(single):.1%} to {max(single):.1%})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cadre", default="build/release/bin/cadre")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=48)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--bucket-mb", default="2")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    args.cadre = os.path.abspath(args.cadre)
    remove_link()
    try:
        make_link(args.rate)
        times, n_bytes = measure(args)
    finally:
        remove_link()
    show(args, times, n_bytes)


main()
