# SPDX-License-Identifier: Apache-2.0
"""What the tests of the command share: running it, and data that is small."""

import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

CADRE = os.path.abspath(sys.argv[1])

# A launcher of ours or of others must not show through.
LAUNCHER_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                  "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS")


def environment(**more):
    kept = {name: value for name, value in os.environ.items()
            if name not in LAUNCHER_NAMES and not name.startswith("CADRE_")}
    return {**kept, **more}


def write_idx(path, extents, data):
    """An idx file of bytes."""
    path.write_bytes(struct.pack(">BBBB", 0, 0, 8, len(extents)) +
                     struct.pack(f">{len(extents)}I", *extents) + data)


def make_data(folder, n_train=600, n_test=260):
    """Ten kinds of noisy stripes, in the files of Fashion-MNIST."""
    folder.mkdir(parents=True, exist_ok=True)
    source = random.Random(7)
    for name, n in (("train", n_train), ("t10k", n_test)):
        labels = bytes(source.randrange(10) for _ in range(n))
        images = b"".join(
            bytes(noise // 4 + (160 if i % 10 == label else 0)
                  for i, noise in enumerate(source.randbytes(784)))
            for label in labels)
        write_idx(folder / f"{name}-labels-idx1-ubyte", (n,), labels)
        write_idx(folder / f"{name}-images-idx3-ubyte", (n, 28, 28), images)
    return folder


class CommandTest(unittest.TestCase):
    """Each class has a folder of its own, with small data in it."""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="cadre-cli-"))
        cls.data = make_data(cls.folder / "data")
        cls.n_runs = 0

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def new_out(self):
        type(self).n_runs += 1
        return self.folder / f"run-{self.n_runs}"

    def cadre(self, *arguments, timeout=120, **environ):
        return subprocess.run(
            [CADRE, *map(str, arguments)], stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=timeout, cwd=self.folder,
            env=environment(**environ))

    def refused(self, status, words, *arguments, **environ):
        """The command ends with this status and one sentence with words."""
        done = self.cadre(*arguments, **environ)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertIn(words, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        return done

    def train_arguments(self, *arguments, out=None, steps=20):
        out = out or self.new_out()
        return ("train", "mlp-fashion", "--steps", steps, "--out", out,
                "--set", f"data.path={self.data}", *arguments)

    def train(self, *arguments, out=None, steps=20, **environ):
        """Trains a little; returns the run's folder and its summary."""
        out = out or self.new_out()
        done = self.cadre(
            *self.train_arguments(*arguments, out=out, steps=steps), **environ)
        self.assertEqual(done.returncode, 0, done.stderr)
        return out, json.loads((out / "summary.json").read_text())


def main():
    unittest.main(argv=sys.argv[:1])
