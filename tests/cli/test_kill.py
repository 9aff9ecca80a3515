#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks of cadre train that die, hang or lose their launcher.

    test_kill.py CADRE PATIENCE [ROUNDS]

Every time all others end within a second, all name the right rank, the launcher
returns within two, and nothing is left.  PATIENCE multiplies these limits, for
builds that are slower than the one that users have.
"""

import os
import random
import re
import signal
import subprocess
import sys
import time

import harness

PATIENCE = float(sys.argv[2])
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 5
N_RANKS = 4
TIMEOUT_MS = 2000


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def is_alive(pid):
    fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return bool(fields) and fields[0] not in (b"Z", b"X")


def ranks_of(launcher):
    """The pid of each rank that the launcher has started, by its number."""
    found = {}
    for pid in read(f"/proc/{launcher}/task/{launcher}/children").split():
        for name in read(f"/proc/{int(pid)}/environ").split(b"\0"):
            if name.startswith(b"CADRE_RANK="):
                found[int(name[11:])] = int(pid)
    return found


class Kill(harness.CommandTest):
    def setUp(self):
        seed = random.randrange(2**32)
        self.random = random.Random(seed)
        self.note = f"seed {seed}"

    def wait(self, condition, seconds, what):
        deadline = time.monotonic() + seconds * PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), deadline, f"{what}; {self.note}")
            time.sleep(0.005)

    def start(self, *arguments):
        """A run without end, some steps on its way."""
        out = self.new_out()
        process = subprocess.Popen(
            [harness.CADRE, *map(str, self.train_arguments(
                "-n", N_RANKS, "--threads", 1, "--quiet", "--set",
                "train.log_every=1", *arguments, out=out, steps=10**7))],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, env=harness.environment())
        self.addCleanup(self.end, process)
        self.wait(lambda: len(read(out / "metrics.jsonl")) > 0, 30, "no step")
        time.sleep(self.random.uniform(0, 0.1))
        return process, ranks_of(process.pid), out

    def end(self, process):
        process.kill()
        process.wait()
        process.stderr.close()

    def check_end(self, process, ranks, victim, out, patience=0.0):
        began = time.monotonic()
        others = [pid for rank, pid in ranks.items() if rank != victim]
        self.wait(lambda: not any(map(is_alive, others)), 1 + patience,
                  "a rank is left after a second")
        errors = process.communicate(timeout=20 * PATIENCE)[1]
        self.assertLess(time.monotonic() - began, (2 + patience) * PATIENCE)
        self.assertEqual(process.returncode, 3, errors + self.note)
        self.assertFalse(any(map(is_alive, ranks.values())))
        for rank in range(N_RANKS):
            said = re.search(f"^cadre train: rank {rank}: (.*)$", errors, re.M)
            if rank == victim:
                continue
            self.assertIsNotNone(said, f"{rank} said nothing: {errors}")
            self.assertIn(f"rank {victim} ", said.group(1), errors)
        names = {path.name.partition(".tfevents.")[0] for path in out.iterdir()}
        self.assertEqual(names, {"config.yaml", "metrics.jsonl", "events.out"})

    def test_a_rank_is_killed(self):
        for i in range(ROUNDS):
            victim = self.random.randrange(N_RANKS)
            with self.subTest(i, victim=victim):
                transport = ("shm", "tcp")[i % 2]
                process, ranks, out = self.start(
                    "--set", f"parallel.transport={transport}")
                self.assertEqual(len(ranks), N_RANKS)
                os.kill(ranks[victim], signal.SIGKILL)
                self.check_end(process, ranks, victim, out)

    def test_a_rank_hangs(self):
        for i in range((ROUNDS + 4) // 5):
            victim = self.random.randrange(N_RANKS)
            with self.subTest(i, victim=victim):
                process, ranks, out = self.start(
                    "--set", f"parallel.timeout_ms={TIMEOUT_MS}")
                os.kill(ranks[victim], signal.SIGSTOP)
                self.check_end(process, ranks, victim, out,
                               patience=TIMEOUT_MS / 1000)

    def test_the_launcher_is_killed(self):
        for i in range((ROUNDS + 4) // 5):
            with self.subTest(i):
                process, ranks, _ = self.start()
                process.kill()
                self.wait(lambda: not any(map(is_alive, ranks.values())), 2,
                          "a rank has outlived its launcher")


if __name__ == "__main__":
    harness.main()
