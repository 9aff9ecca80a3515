#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cadre doctor: says what there is, and what to do about what is amiss.

    test_doctor.py CADRE
"""

import json
import os
import resource
import subprocess
import sys
import unittest

CADRE = sys.argv[1]


def doctor(*arguments, **how):
    return subprocess.run([CADRE, "doctor", *arguments],
                          stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=60, **how)


def checks(**how):
    done = doctor("--json", **how)
    assert done.returncode == 0, done.stderr
    return {c["id"]: c for c in json.loads(done.stdout)["checks"]}


class Doctor(unittest.TestCase):
    def test_text_and_json_say_the_same(self):
        lines = [line.split() for line in doctor().stdout.splitlines()
                 if not line.startswith(" ")]
        self.assertEqual([(word[1], word[0]) for word in lines],
                         [(c["id"], c["status"]) for c in checks().values()])

    def test_what_it_says_is_so(self):
        found = checks()
        usable = len(os.sched_getaffinity(0))
        self.assertIn(f"{usable} of {os.cpu_count()} cores",
                      found["cores"]["found"])
        with open("/proc/meminfo") as f:
            total = int(f.readline().split()[1]) // 1024
        self.assertTrue(found["memory"]["found"].startswith(f"{total} MiB"))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.assertIn(f"{soft} open files", found["open-files"]["found"])
        self.assertEqual(found["inproc"]["status"], "ok")
        listed = subprocess.run([CADRE, "train", "--list"], text=True,
                                capture_output=True, check=True).stdout
        self.assertEqual(
            [words.split()[0] for words in found["data"]["found"].split(", ")],
            [line.split()[0] for line in listed.splitlines()])

    def test_few_descriptors_are_warned_of(self):
        def few():
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))

        check = checks(preexec_fn=few)["open-files"]
        self.assertEqual(check["status"], "warn")
        self.assertIn("ulimit -n", check["fix"])

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "needs two cores")
    def test_a_binding_is_warned_of(self):
        def bind():
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

        check = checks(preexec_fn=bind)["cores"]
        self.assertEqual(check["status"], "warn")
        self.assertIn("taskset", check["fix"])

    def test_refusals(self):
        done = doctor("please")
        self.assertEqual(done.returncode, 2)
        self.assertIn("please", done.stderr)
        self.assertEqual(doctor("--jason").returncode, 2)

    def test_lost_output_is_said(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([CADRE, "doctor"], stdout=full,
                                  stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("standard output", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
