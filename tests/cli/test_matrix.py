#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks, threads, fold, buckets and transport never show in the bits.

    test_matrix.py CADRE [--full]

The short form trains a few steps on small data; the full one is the matrix of
docs/numerics.md: 300 steps on Fashion-MNIST.
"""

import itertools
import sys

import harness

FULL = "--full" in sys.argv

TRANSPORTS = ("inproc", "shm", "tcp")
FOLDS = ("deferred", "eager", "2")
BUCKETS = ("0.05", "25")


class Matrix(harness.CommandTest):
    def hash_of(self, leaves, *arguments):
        keys = ("--set", f"parallel.leaves={leaves}", "--quiet", *arguments)
        if FULL:
            out = self.new_out()
            done = self.cadre("train", "mlp-fashion", "--steps", 300, "--out",
                              out, *keys, timeout=600)
            self.assertEqual(done.returncode, 0, done.stderr)
            return harness.json.loads(
                (out / "summary.json").read_text())["params_hash"]
        return self.train(*keys)[1]["params_hash"]

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
            self.all_equal(8, (1, 2, 3, 4, 5, 8))
            self.all_equal(6, range(1, 7))
            self.all_equal(13, (1, 2, 3, 4, 5, 8, 13))
        else:
            self.all_equal(8, (2, 3))

    def test_a_batch_that_leaves_do_not_divide(self):
        ranks = (1, 2, 3, 4, 5, 8) if FULL else (3,)
        self.all_equal(8, ranks, "--set", "train.global_batch=63")

    def test_threads_folds_and_buckets(self):
        alone = self.hash_of(8, "-n", "1", "--threads", "1")
        everything = itertools.product(
            (1, 2, 3, 4, 5, 8), (1, 2), FOLDS, BUCKETS, TRANSPORTS)
        a_few = ((1, 2, "eager", "0.05", "inproc"),
                 (2, 2, "2", "0.05", "tcp"),
                 (2, 2, "eager", "0.05", "shm"),
                 (3, 1, "eager", "25", "inproc"),
                 (3, 2, "deferred", "0.05", "inproc"))
        for n, threads, fold, bucket, transport in (
                everything if FULL else a_few):
            with self.subTest(n=n, threads=threads, fold=fold, bucket=bucket,
                              transport=transport):
                self.assertEqual(alone, self.hash_of(
                    8, "-n", n, "--threads", threads, "--set",
                    f"parallel.fold={fold}", "--set",
                    f"parallel.bucket_mb={bucket}", "--set",
                    f"parallel.transport={transport}"))

    def test_modes_and_overlap(self):
        alone = self.hash_of(8, "-n", "1", "--threads", "1")
        everything = itertools.product(
            (1, 2, 3, 4, 6, 8), ("ddp", "zero1"), ("on", "off"), BUCKETS,
            (1, 2), TRANSPORTS)
        a_few = ((1, "zero1", "on", "25", 2, "inproc"),
                 (2, "ddp", "off", "25", 1, "tcp"),
                 (2, "zero1", "on", "0.05", 2, "tcp"),
                 (3, "zero1", "off", "0.05", 1, "inproc"))
        for n, mode, overlap, bucket, threads, transport in (
                everything if FULL else a_few):
            with self.subTest(n=n, mode=mode, overlap=overlap, bucket=bucket,
                              threads=threads, transport=transport):
                self.assertEqual(alone, self.hash_of(
                    8, "-n", n, "--threads", threads, "--set",
                    f"parallel.mode={mode}", "--set",
                    f"parallel.overlap={overlap}", "--set",
                    f"parallel.bucket_mb={bucket}", "--set",
                    f"parallel.transport={transport}"))

    def test_convolutions(self):
        """Leaves of 10 and 11 samples; in full, 60 steps of the recipe."""
        def hash_of(*arguments):
            out = self.new_out()
            given = () if FULL else (
                "--set", f"data.path={self.data}",
                "--set", "train.global_batch=62")
            done = self.cadre(
                "train", "cnn-fashion", "--steps", 60 if FULL else 3, "--out",
                out, "--quiet", "--set", "parallel.leaves=6", *given,
                *arguments, timeout=600)
            self.assertEqual(done.returncode, 0, done.stderr)
            return harness.json.loads(
                (out / "summary.json").read_text())["params_hash"]

        alone = hash_of("-n", 1, "--threads", 1)
        everything = itertools.product(
            (1, 2, 3, 4, 6), (1, 2), FOLDS, BUCKETS, TRANSPORTS)
        a_few = ((2, 2, "deferred", "0.05", "tcp"),
                 (4, 1, "eager", "25", "inproc"))
        for n, threads, fold, bucket, transport in (
                everything if FULL else a_few):
            with self.subTest(n=n, threads=threads, fold=fold, bucket=bucket,
                              transport=transport):
                self.assertEqual(alone, hash_of(
                    "-n", n, "--threads", threads, "--set",
                    f"parallel.fold={fold}", "--set",
                    f"parallel.bucket_mb={bucket}", "--set",
                    f"parallel.transport={transport}"))

    def test_another_number_of_leaves_gives_other_bits(self):
        self.assertNotEqual(self.hash_of(8, "-n", "1"),
                            self.hash_of(6, "-n", "1"))


if __name__ == "__main__":
    harness.main()
