#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The examples: any number of ranks gives the bits of one.

    test_examples.py CADRE FOLDER_OF_EXAMPLES
"""

import collections
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

CADRE, FOLDER = sys.argv[1:3]
LINE = re.compile(r"loss (\S+), parameters ([0-9a-f]{16})\n")


def program(name):
    return os.path.join(FOLDER, name)


class Examples(unittest.TestCase):
    def run_it(self, *command):
        done = subprocess.run(command, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout, done.stderr

    def hash_of(self, *command, loss_below):
        code, output, errors = self.run_it(*command)
        self.assertEqual((code, errors), (0, ""), output)
        match = LINE.fullmatch(output)
        self.assertIsNotNone(match, output)
        self.assertLess(float(match.group(1)), loss_below)
        return match.group(2)

    def check_ranks(self, name, ranks, loss_below):
        alone = self.hash_of(program(name), loss_below=loss_below)
        for n in ranks:
            with self.subTest(program=name, ranks=n):
                self.assertEqual(
                    self.hash_of(CADRE, "run", "-n", str(n), "--",
                                 program(name), loss_below=loss_below),
                    alone)
        return alone

    def test_linear_in_c_and_in_cpp(self):
        self.assertEqual(self.check_ranks("linear", (1, 2, 3, 4), 1e-6),
                         self.check_ranks("linear_cpp", (2, 4), 1e-6))

    def test_two_layers(self):
        self.check_ranks("two_layers", (2, 3, 8), 0.05)

    def test_a_net_of_ones_own(self):
        self.check_ranks("own_net", (2, 3, 4), 0.02)

    def test_more_ranks_than_leaves_are_refused(self):
        for name in ("linear", "linear_cpp", "own_net"):
            code, output, errors = self.run_it(
                CADRE, "run", "-n", "5", "--", program(name))
            self.assertEqual(code, 1, output + errors)
            self.assertIn("leaves", errors)

    def test_a_trace_shows_a_step(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            code, _, errors = self.run_it(
                CADRE, "run", "-n", "2", "--", program("two_layers"), path)
            self.assertEqual((code, errors), (0, ""))
            with open(path, encoding="utf-8") as f:
                events = json.load(f)
        times = [event["ts"] for event in events]
        self.assertEqual(times, sorted(times))
        count = collections.Counter((e["name"], e["ph"]) for e in events)
        # 8 leaves among 2 ranks, of 4 parameters each.
        self.assertEqual(count["leaf", "b"], 4)
        self.assertEqual(count["leaf", "e"], 4)
        self.assertEqual(count["gradient ready", "i"], 16)
        for name in ("fold", "gather"):
            self.assertGreater(count[name, "b"], 1)
            self.assertEqual(count[name, "b"], count[name, "e"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
