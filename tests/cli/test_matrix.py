#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks, threads, mode, overlap, fold, buckets and transport change no bit.

    test_matrix.py CADRE [--full]

And each of them did what it says, as the trace of the last two steps shows.
The short form trains a few steps on small data, by settings of which each pair
of values meets in some run.  The full one trains on Fashion-MNIST: 300 steps of
mlp-fashion by every setting, 60 of cnn-fashion by such pairs; it prints a line
per run.
"""

import itertools
import json
import sys

import harness

FULL = "--full" in sys.argv

RANKS = (1, 2, 3, 4, 6)
TRANSPORTS = ("inproc", "shm", "tcp")
MATRIX = {
    "mode": ("ddp", "zero1"),
    "overlap": ("on", "off"),
    "bucket_mb": ("0.05", "25"),
    "transport": TRANSPORTS,
    "threads": (1, 2),
}
FURTHER = {
    "fold": ("deferred", "eager", "2"),
    "progress_thread": ("false", "true"),
}


def products(factors):
    """Every choice of a value for each factor."""
    for values in itertools.product(*factors.values()):
        yield dict(zip(factors, values))


def pairs_of(row):
    return {frozenset(pair) for pair in itertools.combinations(row.items(), 2)}


def pairwise(factors):
    """Choices, among which any two values of two factors meet."""
    rows = [pairs_of(row) for row in products(factors)]
    missing = set().union(*rows)
    while missing:
        best = max(products(factors),
                   key=lambda row: len(pairs_of(row) & missing))
        missing -= pairs_of(best)
        yield best


class Matrix(harness.CommandTest):
    def run_of(self, recipe, steps, leaves, *arguments):
        """A run's folder and summary; its last two steps are traced."""
        out = self.new_out()
        small = () if FULL else ("--set", f"data.path={self.data}")
        done = self.cadre(
            "train", recipe, "--steps", steps, "--out", out, "--quiet",
            "--trace", f"{steps - 1}:2", "--set", f"parallel.leaves={leaves}",
            *small, *arguments, timeout=1200)
        self.assertEqual(done.returncode, 0, done.stderr)
        return out, json.loads((out / "summary.json").read_text())

    def hash_of(self, leaves, *arguments):
        return self.run_of("mlp-fashion", 300 if FULL else 20, leaves,
                           *arguments)[1]["params_hash"]

    # --- what the settings did

    def check_trace(self, out, summary, chosen):
        events = json.loads((out / "trace.json").read_text())["traceEvents"]
        last = summary["steps"]
        sent = []
        for rank in range(summary["world_size"]):
            mine = [e for e in events if e["pid"] == rank and
                    e.get("args", {}).get("step") == last]
            chunks = [e for e in mine if e["cat"] == "chunk"]
            sent.append(sum(e["args"]["bytes"] for e in chunks))
            if summary["world_size"] == 1:
                continue
            leaves = [(e["ts"], e["ts"] + e["dur"]) for e in mine
                      if e["cat"] == "leaf"]
            ready = [e["ts"] for e in mine if e["cat"] == "grad"]
            if leaves:  # with a fold of 2 three ranks have all there are
                self.check_overlap(
                    chosen, [e["ts"] for e in chunks], leaves, ready)
            self.check_buckets(chosen, [e["args"] for e in chunks])
        self.assertEqual(max(sent), summary["bytes_sent_per_step"])

    def check_overlap(self, chosen, posted, leaves, ready):
        if chosen["overlap"] == "on":
            # Where there are more threads, the one that posts may have to wait
            # for a core until the others are done.
            if (chosen["threads"], chosen.get("progress_thread")) in (
                    (1, None), (1, "false")):
                self.assertLess(min(posted), max(ready))
            return
        self.assertGreaterEqual(min(posted), min(end for _, end in leaves))
        for since, until in leaves if chosen["threads"] == 1 else ():
            self.assertFalse([at for at in posted if since < at < until])

    def check_buckets(self, chosen, chunks):
        buckets = {args["bucket"] for args in chunks}
        most = int(float(chosen["bucket_mb"]) * (1 << 20))
        for args in chunks:
            if not args["gather"]:
                self.assertLessEqual(args["bytes"], most)
        if chosen["bucket_mb"] == "25":
            self.assertLess(len(buckets), 16)
        else:  # of 1.7 MB or 2.1 MB
            self.assertGreater(len(buckets), 30)

    # --- the matrix

    def check_all(self, recipe, steps, ranks_and_settings, *arguments):
        """Six leaves: one hash, and each setting did what it says."""
        hashes = {}
        for n, chosen in ranks_and_settings:
            threads = chosen["threads"]
            keys = [word for name, value in chosen.items()
                    if name != "threads"
                    for word in ("--set", f"parallel.{name}={value}")]
            with self.subTest(recipe=recipe, n=n, **chosen):
                out, summary = self.run_of(
                    recipe, steps, 6, "-n", n, "--threads", threads, *keys,
                    *arguments)
                given = {"world_size": n, "threads": threads, "leaves": 6,
                         "mode": chosen["mode"], "replicas_equal": True,
                         "transport": chosen["transport"] if n > 1 else "none"}
                self.assertEqual({k: summary[k] for k in given}, given)
                self.assertEqual(summary["bytes_sent_per_step"],
                                 summary["formula_bytes_per_step"])
                self.check_trace(out, summary, chosen)
                words = " ".join(map(str, chosen.values()))
                hashes.setdefault(summary["params_hash"], []).append(
                    f"-n {n} {words}")
                if FULL:
                    print(f"{summary['params_hash']} {recipe} -n {n} {words}",
                          flush=True)
        self.assertEqual(len(hashes), 1, hashes)

    def chosen_in_pairs(self, factors):
        alone = {name: values[0] for name, values in factors.items()}
        yield 1, {**alone, "threads": 1}
        yield 1, {**alone, "mode": "zero1", "threads": 2}
        for row in pairwise({"ranks": RANKS[1:], **factors}):
            yield row.pop("ranks"), row

    def test_pairs_of_all_settings(self):
        self.check_all("mlp-fashion", 300 if FULL else 5,
                       self.chosen_in_pairs({**MATRIX, **FURTHER}))

    @harness.unittest.skipUnless(FULL, "takes long")
    def test_the_whole_matrix(self):
        alone = {**MATRIX, "transport": TRANSPORTS[:1]}  # one rank uses none
        self.check_all("mlp-fashion", 300, itertools.chain(
            itertools.product(RANKS[:1], products(alone)),
            itertools.product(RANKS[1:], products(MATRIX))))

    def test_convolutions(self):
        if FULL:
            self.check_all("cnn-fashion", 60, self.chosen_in_pairs(MATRIX))
            return
        # Leaves of 10 and 11 samples.
        some = ((1, ("ddp", "on", "25", "inproc", 1)),
                (2, ("zero1", "on", "0.05", "tcp", 2)),
                (4, ("ddp", "off", "25", "shm", 1)))
        self.check_all(
            "cnn-fashion", 3, ((n, dict(zip(MATRIX, values)))
                               for n, values in some),
            "--set", "train.global_batch=62")

    # --- other numbers of leaves, and other batches

    def all_equal(self, leaves, ranks, *arguments):
        alone = self.hash_of(leaves, "-n", "1", "--threads", "1", *arguments)
        for n in ranks:
            for transport in TRANSPORTS:
                with self.subTest(n=n, transport=transport, leaves=leaves):
                    self.assertEqual(alone, self.hash_of(
                        leaves, "-n", n, "--threads", "1", "--set",
                        f"parallel.transport={transport}", *arguments))

    def test_ranks(self):
        if FULL:
            self.all_equal(8, (2, 3, 5, 8))
            self.all_equal(13, (2, 5, 13))
        else:
            self.all_equal(8, (3,))

    def test_a_batch_that_leaves_do_not_divide(self):
        ranks = (2, 3, 5, 8) if FULL else (3,)
        self.all_equal(8, ranks, "--set", "train.global_batch=63")

    def test_another_number_of_leaves_gives_other_bits(self):
        self.assertNotEqual(self.hash_of(8, "-n", "1"),
                            self.hash_of(6, "-n", "1"))


if __name__ == "__main__":
    harness.main()
