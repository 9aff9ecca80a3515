#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/01_linear: any number of ranks gives the bits of one.

    test_linear.py CADRE LINEAR
"""

import re
import subprocess
import sys
import unittest

CADRE, LINEAR = sys.argv[1:3]
LINE = re.compile(r"loss (\S+), parameters ([0-9a-f]{16})\n")


class Linear(unittest.TestCase):
    def run_it(self, *command):
        done = subprocess.run(command, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr

    def hash_of(self, *command):
        code, output, errors = self.run_it(*command)
        self.assertEqual((code, errors), (0, ""), output)
        match = LINE.fullmatch(output)
        self.assertIsNotNone(match, output)
        self.assertLess(float(match.group(1)), 1e-6)
        return match.group(2)

    def test_ranks_do_not_show_in_the_bits(self):
        alone = self.hash_of(LINEAR)
        for n in (1, 2, 3, 4):
            with self.subTest(ranks=n):
                self.assertEqual(
                    self.hash_of(CADRE, "run", "-n", str(n), "--", LINEAR),
                    alone)

    def test_more_ranks_than_leaves_are_refused(self):
        code, output, errors = self.run_it(
            CADRE, "run", "-n", "5", "--", LINEAR)
        self.assertEqual(code, 1, output + errors)
        self.assertIn("leaves", errors)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
