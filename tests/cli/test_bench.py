#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cadre bench: its table, its JSON, its refusals, its end.

    test_bench.py CADRE
"""

import json
import os
import signal
import subprocess

import harness

FIELDS = ["op", "bytes", "count", "dtype", "ranks", "transport", "algorithm",
          "buffers", "median_us", "p95_us", "algbw_gbs", "busbw_gbs", "wrong"]
BYTES = {"f32": 4, "bf16": 2, "f16": 2, "f64": 8, "i8": 1, "u8": 1, "i32": 4,
         "i64": 8}
FLOATS = ("f32", "bf16", "f16", "f64")
BUS = {"allreduce": lambda n: 2 * (n - 1) / n,
       "reduce-scatter": lambda n: (n - 1) / n,
       "allgather": lambda n: (n - 1) / n,
       "broadcast": lambda n: 1, "barrier": lambda n: 1}
FEW = ("-w", 1, "-i", 3)


class Bench(harness.CommandTest):
    def rows(self, *arguments, **environ):
        done = self.cadre("bench", *arguments, "--json", **environ)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        for row in rows:
            self.assertEqual(list(row), FIELDS)
        return rows

    def check_sizes(self, row, nbytes):
        """nccl-tests: a count is that of a part where there are parts."""
        n = row["ranks"]
        parts = n if row["op"] in ("reduce-scatter", "allgather") else 1
        element = BYTES[row["dtype"]]
        self.assertEqual(row["count"], max(nbytes // element // parts, 1))
        self.assertEqual(row["bytes"], row["count"] * element * parts)

    def check_arithmetic(self, row):
        self.assertGreater(row["median_us"], 0)
        self.assertGreaterEqual(row["p95_us"], row["median_us"])
        algbw = row["bytes"] / row["median_us"] / 1e3
        self.assertAlmostEqual(row["algbw_gbs"], algbw, delta=1e-9 * algbw)
        busbw = algbw * BUS[row["op"]](row["ranks"])
        self.assertAlmostEqual(row["busbw_gbs"], busbw, delta=1e-9 * busbw)

    def test_every_operation_and_number_of_ranks(self):
        for op in BUS:
            for n in (1, 2, 3):
                for transport in ("inproc", "tcp"):
                    with self.subTest(op=op, n=n, transport=transport):
                        rows = self.rows(op, "-n", n, "-b", 4, "-e", "4K",
                                         "-f", 32, "--transport", transport,
                                         *FEW)
                        used = transport if n > 1 else "none"
                        for row in rows:
                            self.assertEqual(row["op"], op)
                            self.assertEqual(row["ranks"], n)
                            self.assertEqual(row["transport"], used)
                            self.assertEqual(row["algorithm"] == "none", n == 1)
                            self.assertEqual(row["buffers"], "arena")
                            self.assertEqual(row["wrong"], 0)
                            self.check_arithmetic(row)
                        if op == "barrier":
                            self.assertEqual(
                                [(r["bytes"], r["count"]) for r in rows],
                                [(0, 0)])
                            continue
                        self.assertEqual(len(rows), 3)
                        for row, nbytes in zip(rows, (4, 128, 4096)):
                            self.check_sizes(row, nbytes)

    def test_every_type_and_reduction_has_the_expected_bits(self):
        for dtype in BYTES:
            for reduce_op in ("sum", "mean", "min", "max", "product"):
                if reduce_op == "mean" and dtype not in FLOATS:
                    continue
                for op in ("allreduce", "reduce-scatter"):
                    with self.subTest(op=op, dtype=dtype, reduce_op=reduce_op):
                        rows = self.rows(
                            op, "-n", 5, "-b", 40, "-e", "10K", "-f", 256, "-d",
                            dtype, "-o", reduce_op, "--transport", "inproc",
                            *FEW)
                        self.assertEqual([r["wrong"] for r in rows], [0, 0])
                        self.assertEqual(rows[0]["dtype"], dtype)

    def test_every_type_is_moved(self):
        for dtype in BYTES:
            for op in ("allgather", "broadcast"):
                with self.subTest(op=op, dtype=dtype):
                    rows = self.rows(op, "-n", 3, "-b", 3000, "-e", 3000, "-d",
                                     dtype, "--transport", "inproc", *FEW)
                    self.assertEqual([r["wrong"] for r in rows], [0])

    def test_buffers_of_the_program(self):
        for transport in ("inproc", "tcp"):
            row, = self.rows("allreduce", "-n", 2, "-b", "1M", "-e", "1M",
                             "--buffers", "user", "--transport", transport,
                             *FEW)
            self.assertEqual((row["buffers"], row["wrong"]), ("user", 0))

    def test_series_of_sizes(self):
        def sizes(*arguments):
            return [row["bytes"] for row in self.rows(
                "broadcast", "-n", 1, "-i", 1, *arguments)]
        self.assertEqual(sizes("-b", "1k", "-e", "4K"), [1024, 2048, 4096])
        self.assertEqual(sizes("-b", "1K", "-e", "9K", "-f", 3),
                         [1024, 3072, 9216])
        self.assertEqual(sizes("-b", "1M", "-e", "1M"), [1 << 20])
        self.assertEqual(sizes("-e", "4"), [4])
        self.assertEqual(sizes("-b", "128M", "-w", 0), [128 << 20])
        self.assertEqual(sizes("--minbytes", 8, "--maxbytes=64",
                               "--stepfactor", 4), [8, 32])

    def test_a_check_that_is_left_out(self):
        arguments = ("allreduce", "-n", 2, "-e", 8, "-c", 0)
        self.assertIsNone(self.rows(*arguments)[0]["wrong"])
        done = self.cadre("bench", *arguments)
        self.assertEqual(done.stdout.split()[-1], "N/A")

    def test_the_table_has_the_columns_of_nccl_tests(self):
        done = self.cadre("bench", "allgather", "-n", 2, "-b", "1K", "-e", "2K",
                          "-d", "f64", *FEW)
        self.assertEqual(done.returncode, 0, done.stderr)
        head = [line for line in done.stdout.splitlines() if "size" in line]
        self.assertEqual(head[0].split()[1:], [
            "size", "count", "type", "redop", "root", "time", "algbw", "busbw",
            "#wrong"])
        rows = [line.split() for line in done.stdout.splitlines()
                if not line.startswith("#")]
        self.assertEqual([row[:5] for row in rows],
                         [["1024", "64", "f64", "none", "-1"],
                          ["2048", "128", "f64", "none", "-1"]])
        for row in rows:
            self.assertEqual(len(row), 9)
            self.assertGreater(float(row[5]), 0)
            self.assertEqual(row[8], "0")
        row = self.cadre("bench", "broadcast", "-n", 1, "-e", 8,
                         *FEW).stdout.splitlines()[-1].split()
        self.assertEqual(row[3:5], ["none", "0"])
        row = self.cadre("bench", "allreduce", "-n", 1, "-e", 8, "-o", "max",
                         *FEW).stdout.splitlines()[-1].split()
        self.assertEqual(row[3:5], ["max", "-1"])

    def test_help_of_one_screen(self):
        lines = self.cadre("bench", "--help").stdout.splitlines()
        self.assertLessEqual(len(lines), 24)
        self.assertLessEqual(max(map(len, lines)), 80)

    def test_ranks_of_a_launcher(self):
        done = self.cadre("run", "-n", 3, "--", harness.CADRE, "bench",
                          "allreduce", "-e", 8, "--json", *FEW)
        self.assertEqual(done.returncode, 0, done.stderr)
        row = json.loads(done.stdout)
        self.assertEqual((row["ranks"], row["wrong"]), (3, 0))

    def test_ranks_that_are_bound(self):
        row, = self.rows("allreduce", "-n", 2, "-e", 8, "--bind", "core", *FEW)
        self.assertEqual(row["wrong"], 0)
        self.rows("allreduce", "-n", 2, "-e", 8, "--bind", "none", *FEW)

    def test_the_default_number_of_ranks_is_said(self):
        done = self.cadre("bench", "barrier", "--json", *FEW)
        cores = len(os.sched_getaffinity(0))
        self.assertEqual(json.loads(done.stdout)["ranks"], cores)
        self.assertIn(f"{cores} ranks, one per core", done.stderr)

    def test_requests_that_make_no_sense(self):
        two = ("allreduce", "-n", 2)
        for words, arguments in (
                ("no operation", ()),
                ("more than one", ("allreduce", "allgather")),
                ("did you mean 'allreduce'", ("alreduce",)),
                ("did you mean 'f32'", (*two, "-d", "f31")),
                ("did you mean 'product'", (*two, "-o", "prod")),
                ("did you mean 'tcp'", (*two, "--transport", "tcq")),
                ("did you mean 'ring'", (*two, "--order", "rung")),
                ("did you mean 'user'", (*two, "--buffers", "usr")),
                ("--bind wants", (*two, "--bind", "socket")),
                ("--bind core", (*two, "--bind", "core", "--transport",
                                 "inproc")),
                ("mean of i32", (*two, "-d", "i32", "-o", "mean")),
                ("above the largest", (*two, "-b", 8, "-e", 4)),
                ("-n wants", ("allreduce", "-n", 0)),
                ("-f wants", (*two, "-f", 1)),
                ("-i wants", (*two, "-i", 0)),
                ("-c wants", (*two, "-c", 2)),
                ("no option '--foo'", (*two, "--foo")),
                ("too many words", (*two, *("--json",) * 70)),
                *(("-b wants a number of bytes", (*two, "-b", text))
                  for text in ("0", "-4", "", "K", "4x", "4KK", "1.5K",
                               "99999999999999999999", "9999999999G"))):
            with self.subTest(arguments):
                self.refused(2, words, "bench", *arguments)

    def test_what_is_not_built_yet(self):
        for op in ("reduce", "alltoall", "gather", "scatter", "sendrecv"):
            self.refused(2, f"'{op}' is not built yet", "bench", op)
        self.refused(2, "--overlap is not built yet", "bench", "allreduce",
                     "--overlap")
        self.refused(2, "'ucx' is not built yet", "bench", "allreduce",
                     "--transport", "ucx")

    def test_more_than_the_memory_holds(self):
        for transport in ("inproc", "tcp"):
            done = self.refused(2, "free memory", "bench", "allreduce", "-n", 2,
                                "-e", "1000000G", "--transport", transport)
            self.assertEqual(done.stdout, "")

    def test_what_does_not_go_with_a_launcher(self):
        alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": "1"}
        self.refused(2, "-n 2", "bench", "allreduce", "-n", 2, **alone)
        self.refused(2, "inproc", "bench", "allreduce", "--transport",
                     "inproc", **alone)
        self.refused(2, "--bind", "bench", "allreduce", "--bind", "core",
                     **alone)

    def test_a_pipe_that_nobody_reads(self):
        for arguments in (("-n", 1), ("-n", 2),
                          ("-n", 2, "--transport", "inproc")):
            with self.subTest(arguments):
                bench = subprocess.Popen(
                    [harness.CADRE, "bench", "barrier", "--json",
                     *map(str, (*arguments, *FEW))],
                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                    env=harness.environment())
                bench.stdout.close()
                bench.wait(timeout=60)
                self.assertIn(bench.returncode, (141, -signal.SIGPIPE))

    def test_a_signal_ends_it_cleanly(self):
        for transport, number in (("inproc", signal.SIGINT),
                                  ("tcp", signal.SIGTERM)):
            with self.subTest(transport):
                process = subprocess.Popen(
                    [harness.CADRE, "bench", "allreduce", "-n", "2", "-b",
                     "64K", "-e", "128K", "-i", "1000000", "--transport",
                     transport],
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE, text=True, cwd=self.folder,
                    env=harness.environment())
                while "(B)" not in process.stdout.readline():
                    self.assertIsNone(process.poll())
                process.send_signal(number)
                out, errors = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 128 + number, errors)
                self.assertEqual(out, "")  # no row of half a measurement
                self.assertEqual(errors.strip().count("\n"), 0, errors)

    def test_a_signal_to_one_rank_ends_all(self):
        process = subprocess.Popen(
            [harness.CADRE, "run", "-n", "2", "--", "sh", "-c",
             'test $RANK = 0 || echo $$ >pid; exec "$0" bench allreduce -b 64K '
             "-e 128K -i 1000000", harness.CADRE], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            cwd=self.folder, env=harness.environment())
        while "(B)" not in process.stdout.readline():
            self.assertIsNone(process.poll())
        os.kill(int((self.folder / "pid").read_text()), signal.SIGINT)
        out, errors = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out, errors),
                         (128 + signal.SIGINT, "", ""))


if __name__ == "__main__":
    harness.main()
