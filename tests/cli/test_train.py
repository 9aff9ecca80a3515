#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cadre train and cadre eval: what a run leaves behind, and how it is stopped.

    test_train.py CADRE
"""

import json
import math
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import time

import harness

SUMMARY_FIELDS = {
    "recipe", "world_size", "threads", "mode", "leaves", "fold", "precision",
    "order", "transport", "isa", "library_versions", "steps", "wall_seconds",
    "identity", "loss", "eval", "samples_per_second", "tokens_per_second",
    "step_ms_median", "exposed_fraction", "bytes_sent_per_step",
    "formula_bytes_per_step", "overhead_bytes_per_step", "state_bytes",
    "activation_bytes", "step_parts_ms", "peak_rss_bytes", "job_peak_bytes", "params_hash", "buffers_hash", "replicas_equal",
    "reproduce"}

METRICS_FIELDS = {
    "step", "loss", "lr", "grad_norm", "samples_per_second",
    "tokens_per_second", "step_ms", "exposed_ms", "hidden_ms", "bytes_sent",
    "step_ms_min", "step_ms_max", "rank_step_ms", "rank_busy_ms",
    "slowest_rank", "peak_rss_bytes", "peak_rss_rank"}


def no_constant(name):
    raise ValueError(f"{name} is no JSON")


def metrics_of(out):
    return [json.loads(line, parse_constant=no_constant)
            for line in (out / "metrics.jsonl").read_text().splitlines()]


class Train(harness.CommandTest):
    def eval_of(self, out, *launcher):
        command = (*launcher, harness.CADRE, "eval", str(out), "--json")
        done = subprocess.run(command, capture_output=True, text=True,
                              timeout=60, env=harness.environment())
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_the_files_of_a_run(self):
        out, summary = self.train(
            "-n", "2", "--set", "parallel.leaves=4", "--set",
            "train.log_every=5", "--set", "train.eval_every=10")
        self.assertLessEqual(SUMMARY_FIELDS, set(summary))
        self.assertEqual(summary["recipe"], "mlp-fashion")
        self.assertEqual((summary["world_size"], summary["leaves"],
                          summary["fold"], summary["steps"]), (2, 4, 2, 20))
        self.assertEqual(summary["transport"], "shm")
        self.assertIs(summary["replicas_equal"], True)
        self.assertIsNone(summary["tokens_per_second"])
        self.assertIsNone(summary["buffers_hash"])
        # 535818 parameters; each rank sends the half that it does not own,
        # and its own half of the sums.
        self.assertEqual(summary["bytes_sent_per_step"], 4 * 535818)
        self.assertGreater(summary["samples_per_second"], 0)
        self.assertTrue(0 <= summary["exposed_fraction"] <= 1)

        lines = metrics_of(out)
        self.assertEqual([line["step"] for line in lines], [5, 10, 15, 20])
        for line in lines:
            self.assertLessEqual(METRICS_FIELDS, set(line))
        self.assertEqual(["params_hash" in line for line in lines],
                         [False, True, False, True])
        self.assertEqual(lines[-1]["params_hash"], summary["params_hash"])
        self.assertEqual(lines[-1]["eval_loss"], summary["eval"]["loss"])
        names = sorted(path.name for path in out.iterdir())
        self.assertRegex(names.pop(2), r"^events\.out\.tfevents\.\d{10}\.")
        self.assertEqual(names, ["checkpoints", "config.yaml", "metrics.jsonl",
                                 "model.safetensors", "report.html",
                                 "summary.json"])

    def test_the_loss_falls_and_is_the_mean_of_the_last_ten(self):
        out, summary = self.train("--set", "train.log_every=1", steps=40)
        losses = [line["loss"] for line in metrics_of(out)]
        self.assertEqual(len(losses), 40)
        self.assertLess(summary["loss"], losses[0] / 2)
        self.assertTrue(math.isclose(
            summary["loss"], math.fsum(losses[-10:]) / 10, rel_tol=1e-12))

    def test_bf16_is_used_where_the_processor_has_it(self):
        words = "no instructions for products of bf16"
        bf16 = ("--set", "train.precision=bf16")
        out = self.new_out()
        done = self.cadre(*self.train_arguments("-n", "2", *bf16, out=out))
        self.assertEqual(done.returncode, 0, done.stderr)
        summary = json.loads((out / "summary.json").read_text())
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            there = "avx512_bf16" in f.read()
        self.assertEqual(summary["precision"], "bf16" if there else "f32")
        self.assertEqual(done.stderr.count(words), 0 if there else 1)
        self.assertIn("precision: bf16", (out / "config.yaml").read_text())
        plain = self.train("-n", "2")[1]
        self.assertEqual(summary["params_hash"] == plain["params_hash"],
                         not there)
        self.assertEqual(summary["identity"] == plain["identity"], not there)

        # It goes on with what it ran in.
        done = self.cadre("train", "--resume", out, "--steps", 25)
        self.assertEqual(done.returncode, 0, done.stderr)
        resumed = json.loads((out / "summary.json").read_text())
        self.assertEqual(resumed["precision"], summary["precision"])

    def test_eval_gives_the_bits_of_the_summary(self):
        out, summary = self.train("-n", "2")
        wanted = summary["eval"]
        for launcher in ((), (harness.CADRE, "run", "-n", "2", "--"),
                         (harness.CADRE, "run", "-n", "3", "--")):
            found = self.eval_of(out, *launcher)
            self.assertEqual((found["loss"], found["accuracy"]),
                             (wanted["loss"], wanted["accuracy"]))
            self.assertEqual(found["params_hash"], summary["params_hash"])
            self.assertEqual(found["samples"], 260)
        self.assertIn("accuracy", self.cadre("eval", out).stdout)

    def ranks_fail_alike(self, words, *command):
        done = self.cadre("run", "-n", "3", "--", "sh", "-c", *command)
        self.assertEqual(done.returncode, 3, done.stderr)
        for rank in range(3):
            self.assertIn(f"rank {rank}: {words}", done.stderr)
        self.assertEqual(done.stdout, "")

    def make_other_data(self, change):
        other = self.folder / "other"
        shutil.rmtree(other, ignore_errors=True)
        harness.make_data(other)
        change(other)
        return other

    def test_ranks_with_another_test_split_fail_alike(self):
        out, _ = self.train("--set", "parallel.leaves=3", steps=1)
        config = (out / "config.yaml").read_text()

        def keep_one(folder):
            harness.write_idx(folder / "t10k-labels-idx1-ubyte", (1,), b"\3")
            harness.write_idx(folder / "t10k-images-idx3-ubyte", (1, 28, 28),
                              bytes(784))

        def change_one_pixel(folder):
            path = folder / "t10k-images-idx3-ubyte"
            path.write_bytes(path.read_bytes()[:-1] + b"\xff")

        for change in (keep_one, change_one_pixel):
            other = self.make_other_data(change)
            for rank in range(3):
                run = self.folder / f"of-rank-{rank}"
                shutil.rmtree(run, ignore_errors=True)
                shutil.copytree(out, run)
                data = other if rank == 2 else self.data
                (run / "config.yaml").write_text(
                    config.replace(str(self.data.resolve()), str(data)))
            with self.subTest(change):
                words = "rank 2 has another test split than rank 0"
                self.ranks_fail_alike(
                    words, f"exec {harness.CADRE} eval of-rank-$RANK --json")
                # All that is told apart by rank is the path.
                self.ranks_fail_alike(
                    words, f"exec {harness.CADRE} train "
                    f"of-rank-$RANK/config.yaml --json --out {self.new_out()}")

    def test_ranks_with_other_parameters_do_not_evaluate_together(self):
        first, _ = self.train(steps=1)
        second, _ = self.train(steps=2)
        self.ranks_fail_alike(
            "rank 1 would evaluate other parameters than rank 0",
            f"[ $RANK = 1 ] && exec {harness.CADRE} eval {second}; "
            f"exec {harness.CADRE} eval {first}")

    def test_a_run_and_what_it_leaves_hold_from_any_folder(self):
        out = self.new_out()
        arguments = ("train", "mlp-fashion", "--steps", "3", "--out", out,
                     "--set", "data.path=data")
        done = self.cadre(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        summary = json.loads((out / "summary.json").read_text())
        self.assertIn(str(self.data.resolve()), summary["reproduce"])
        done = subprocess.run(
            [harness.CADRE, "eval", out], capture_output=True, text=True,
            timeout=60, cwd="/", env=harness.environment())
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_ring_is_named_and_reproduced_with_as_many_ranks(self):
        out, summary = self.train("-n", "2", "--set", "parallel.order=ring",
                                  "--set", "parallel.leaves=4")
        self.assertEqual(summary["order"], "ring")
        self.assertIn("order: ring", (out / "config.yaml").read_text())
        _, canonical = self.train("-n", "2", "--set", "parallel.leaves=4")
        self.assertEqual(canonical["order"], "canonical")
        self.assertNotEqual(canonical["identity"], summary["identity"])

        program, *arguments = shlex.split(summary["reproduce"])
        self.assertIn("-n 2", summary["reproduce"])
        again = self.new_out()
        done = self.cadre(*arguments, "--out", again)
        self.assertEqual(done.returncode, 0, done.stderr)
        other = json.loads((again / "summary.json").read_text())
        self.assertEqual(other["params_hash"], summary["params_hash"])
        self.assertEqual(other["identity"], summary["identity"])

    def test_its_own_configuration_reproduces_a_run(self):
        out, summary = self.train(
            "-n", "2", "--threads", "2", "--set", "optim.clip=0.5", "--set",
            "train.global_batch=63", "--set", "optim.name=sgd", "--set",
            "optim.momentum=0.9", "--set", "train.micro_batch=5")
        again = self.new_out()
        done = self.cadre("train", out / "config.yaml", "-n", "3", "--out",
                          again)
        self.assertEqual(done.returncode, 0, done.stderr)
        other = json.loads((again / "summary.json").read_text())
        self.assertEqual(other["params_hash"], summary["params_hash"])
        self.assertEqual(other["identity"], summary["identity"])

        program, *arguments = shlex.split(summary["reproduce"])
        self.assertEqual(program, "cadre")
        self.assertIn("-n 1", summary["reproduce"])
        again = self.new_out()
        done = self.cadre(*arguments, "--out", again)
        self.assertEqual(done.returncode, 0, done.stderr)
        other = json.loads((again / "summary.json").read_text())
        self.assertEqual(other["params_hash"], summary["params_hash"])

    def test_identity_knows_what_may_change_bits(self):
        _, first = self.train(steps=1)
        for same in (("--threads", "2"), ("-n", "2"),
                     ("--set", "parallel.bucket_mb=0.1")):
            _, other = self.train(*same, "--set", "parallel.leaves=2", steps=1)
            _, alone = self.train("--set", "parallel.leaves=2", steps=1)
            self.assertEqual(other["identity"], alone["identity"])
        for different in ("train.seed=2", "parallel.leaves=3", "optim.lr=0.1",
                          "train.global_batch=64", "train.micro_batch=1"):
            _, other = self.train("--set", different, steps=1)
            self.assertNotEqual(other["identity"], first["identity"])

    def test_evaluation_during_training(self):
        keys = ("--set", "parallel.leaves=4", "--set", "train.log_every=7")
        _, plain = self.train(*keys)
        found = []
        for n in ("1", "3"):
            out, summary = self.train("-n", n, *keys, "--set",
                                      "train.eval_every=6")
            # It changes nothing that is trained.
            self.assertEqual(summary["params_hash"], plain["params_hash"])
            lines = metrics_of(out)
            self.assertEqual([line["step"] for line in lines],
                             [6, 7, 12, 14, 18, 20])
            evaluated = [line for line in lines if "eval_loss" in line]
            self.assertEqual([line["step"] for line in evaluated],
                             [6, 12, 18, 20])
            for line in evaluated:
                self.assertRegex(line["params_hash"], "^[0-9a-f]{16}$")
                self.assertTrue(0 <= line["eval_accuracy"] <= 1)
            found.append([(line["eval_loss"], line["eval_accuracy"],
                           line["params_hash"]) for line in evaluated])
            # The hash is that of the parameters at that step.
            _, part = self.train(*keys, steps=12)
            self.assertEqual(found[-1][1][2], part["params_hash"])
            self.assertEqual(found[-1][1][0], part["eval"]["loss"])
        self.assertEqual(found[0], found[1])

    def test_micro_batches_are_the_same_on_any_number_of_ranks(self):
        hashes = set()
        for n, threads in ((1, 1), (2, 1), (3, 2), (6, 1)):
            _, summary = self.train(
                "-n", n, "--threads", threads, "--set", "parallel.leaves=6",
                "--set", "train.global_batch=100", "--set",
                "train.micro_batch=5", "--set", "train.eval_every=7")
            hashes.add(summary["params_hash"])
        self.assertEqual(len(hashes), 1)
        # Accumulated in passes, a leaf's gradient is the whole leaf's but for
        # rounding.
        out, summary = self.train("--set", "parallel.leaves=6", "--set",
                                  "train.global_batch=100", steps=1)
        small, other = self.train(
            "--set", "parallel.leaves=6", "--set", "train.global_batch=100",
            "--set", "train.micro_batch=5", steps=1)
        one, two = metrics_of(out)[0], metrics_of(small)[0]
        self.assertNotEqual(summary["identity"], other["identity"])
        self.assertTrue(math.isclose(one["grad_norm"], two["grad_norm"],
                                     rel_tol=1e-5))

    def rates(self, *keys, steps=12):
        out, _ = self.train("-n", "2", "--set", "train.log_every=1", "--set",
                            "optim.warmup_steps=2", "--set", "optim.lr=0.01",
                            *keys, steps=steps)
        return [line["lr"] for line in metrics_of(out)]

    def check_rates(self, found, wanted):
        self.assertEqual(len(found), len(wanted))
        for ours, theirs in zip(found, wanted):
            self.assertTrue(math.isclose(ours, theirs, rel_tol=1e-12,
                                         abs_tol=1e-18), (ours, theirs))

    def test_schedules_have_the_rates_they_say(self):
        rise = [0.005, 0.01]
        self.check_rates(
            self.rates("--set", "optim.schedule=cosine"),
            rise + [0.005 * (1 + math.cos(math.pi * i / 10))
                    for i in range(10)])
        self.check_rates(
            self.rates("--set", "optim.schedule=linear", "--set",
                       "optim.min_lr_factor=0.5", "--set",
                       "optim.total_steps=7"),
            rise + [0.01 - 0.001 * i for i in range(5)] + [0.005] * 5)
        self.check_rates(
            self.rates("--set", "optim.schedule=step", "--set",
                       "optim.step_every=4"),
            rise + [0.01] * 4 + [0.001] * 4 + [0.0001] * 2)
        self.refused(2, "optim.step_every is 0, at least 1", "train",
                     "mlp-fashion", "--set", "optim.schedule=step")

    def test_decay_of_weights_alone(self):
        keys = ("--set", "parallel.leaves=4", "--set",
                "optim.weight_decay=0.5", "--set", "optim.warmup_steps=0",
                "--set", "optim.lr=0.01")
        _, everything = self.train(*keys)
        hashes = set()
        for n in ("1", "3"):
            _, summary = self.train("-n", n, *keys, "--set",
                                    "optim.decay=weights")
            hashes.add(summary["params_hash"])
            self.assertIn("optim.decay=weights", summary["reproduce"])
        self.assertEqual(len(hashes), 1)
        self.assertNotEqual(hashes, {everything["params_hash"]})
        self.assertNotEqual(summary["identity"], everything["identity"])

    def test_the_command_that_reproduces_keeps_the_whole_schedule(self):
        out, summary = self.train("--set", "optim.schedule=cosine", "--set",
                                  "optim.total_steps=40")
        _, *arguments = shlex.split(summary["reproduce"])
        again = self.new_out()
        done = self.cadre(*arguments, "--out", again)
        self.assertEqual(done.returncode, 0, done.stderr)
        other = json.loads((again / "summary.json").read_text())
        self.assertEqual(other["params_hash"], summary["params_hash"])
        self.assertEqual(other["identity"], summary["identity"])

    def test_a_loss_that_is_no_number_is_no_success(self):
        for n in ("1", "2"):
            out = self.new_out()
            done = self.cadre(*self.train_arguments(
                "-n", n, "--set", "optim.name=sgd", "--set", "optim.lr=1e6",
                out=out, steps=6))
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn("after step 6, the last one, the loss is not finite",
                          done.stderr)
            lines = (out / "metrics.jsonl").read_text().splitlines()
            self.assertIsNone(json.loads(lines[-1])["loss"])
            for name in ("summary.json", "model.safetensors", "checkpoints"):
                self.assertFalse((out / name).exists())
        self.refused(2, "eps is 0: adamw would divide", *self.train_arguments(
            "--set", "optim.eps=0"))

    def test_json_and_quiet(self):
        out = self.new_out()
        done = self.cadre(*self.train_arguments("--json", "-n", "2", out=out))
        self.assertEqual(json.loads(done.stdout),
                         json.loads((out / "summary.json").read_text()))
        self.assertIn("step 20/20 | loss ", done.stderr)
        done = self.cadre(*self.train_arguments("--quiet", "-n", "2"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("params_hash", done.stdout)

    def test_the_default_folder_has_the_recipe_in_its_name(self):
        arguments = [a for a in self.train_arguments()]
        at = arguments.index("--out")
        del arguments[at:at + 2]
        self.assertEqual(self.cadre(*arguments).returncode, 0)
        self.assertEqual(self.cadre(*arguments).returncode, 0)
        found = list((self.folder / "runs").glob("mlp-fashion-*"))
        self.assertEqual(len(found), 2)

    def wait_for_steps(self, process, out):
        """Until the first line of metrics says that the run is under way."""
        metrics = out / "metrics.jsonl"
        deadline = time.monotonic() + 60
        while not (metrics.exists() and metrics.stat().st_size > 0):
            self.assertIsNone(process.poll())
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def start(self, out, *arguments, stderr=subprocess.PIPE):
        """A run without end."""
        command = [harness.CADRE, *map(str, self.train_arguments(
            "--set", "train.log_every=1", *arguments, out=out, steps=10**7))]
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=stderr, text=True, env=harness.environment())

    def test_what_lies_in_the_folder_is_not_waited_for(self):
        out = self.new_out()
        out.mkdir()
        for name in ("config.yaml.part", "metrics.jsonl",
                     "model.safetensors.part", "report.html.part"):
            os.mkfifo(out / name)
        elsewhere = self.folder / "elsewhere"
        elsewhere.write_text("precious")
        (out / "summary.json.part").symlink_to(elsewhere)
        self.train(out=out, steps=1)
        self.assertEqual(elsewhere.read_text(), "precious")

    def test_one_run_at_a_time_writes_into_a_folder(self):
        for more in (("-n", "1"), ("-n", "2"), ("-n", "2", "--set",
                                                "parallel.transport=inproc")):
            with self.subTest(more):
                out = self.new_out()
                process = self.start(out, *more)
                try:
                    self.wait_for_steps(process, out)
                    before = (out / "config.yaml").read_bytes()
                    for others in (("-n", "1"), ("-n", "2"), more):
                        self.refused(2, "another run is writing into",
                                     *self.train_arguments(*others, out=out))
                    self.assertEqual((out / "config.yaml").read_bytes(),
                                     before)
                    self.assertIsNone(process.poll())
                finally:
                    process.kill()
                    process.communicate(timeout=60)
                # Nothing of it is in the way.
                self.train(*more, out=out, steps=1)

    def stop(self, signal_number, *arguments):
        out = self.new_out()
        process = self.start(out, *arguments)
        try:
            self.wait_for_steps(process, out)
            process.send_signal(signal_number)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
        return process.returncode, errors, out

    def test_bound_ranks_have_a_core_each(self):
        cores = os.sched_getaffinity(0)
        for more in (("-n", "2"), ("-n", "1")):
            with self.subTest(more):
                process = self.start(out := self.new_out(), "--bind", "core",
                                     *more, "--threads", "1")
                try:
                    self.wait_for_steps(process, out)
                    ranks = pathlib.Path(
                        f"/proc/{process.pid}/task/{process.pid}/children"
                    ).read_text().split()
                    bound = [os.sched_getaffinity(int(r)) for r in ranks]
                finally:
                    process.kill()
                    process.communicate(timeout=60)
                self.assertEqual([len(b) for b in bound], [1] * int(more[1]))
                self.assertEqual(len(set.union(*bound)),
                                 min(int(more[1]), len(cores)))

    def test_binding_is_for_who_starts_ranks_that_are_processes(self):
        for words, more, environ in (
                ("--bind wants", ("--bind", "socket"), {}),
                ("other than inproc", ("--bind", "core", "--set",
                                       "parallel.transport=inproc"), {}),
                ("for the launcher", ("--bind", "core"),
                 {"RANK": "0", "WORLD_SIZE": "1"})):
            with self.subTest(words):
                self.refused(2, words, *self.train_arguments(*more), **environ)

    def test_a_signal_finishes_the_step_and_saves(self):
        for number, status, name in ((signal.SIGTERM, 143, "SIGTERM"),
                                     (signal.SIGINT, 130, "SIGINT")):
            for more in (("-n", "1"), ("-n", "3"), ("-n", "2", "--set",
                                       "parallel.transport=inproc")):
                with self.subTest(name=name, more=more):
                    code, errors, out = self.stop(number, *more)
                    self.assertEqual(code, status, errors)
                    self.assertIn("again: stop now", errors)
                    summary = json.loads((out / "summary.json").read_text())
                    self.assertEqual(summary["stopped_by"], name)
                    self.assertEqual(summary["steps"],
                                     metrics_of(out)[-1]["step"])
                    self.assertEqual(self.eval_of(out)["params_hash"],
                                     summary["params_hash"])

    def test_a_run_stopped_is_the_beginning_of_the_whole(self):
        _, errors, out = self.stop(
            signal.SIGTERM, "-n", "2", "--set", "parallel.leaves=4")
        stopped = json.loads((out / "summary.json").read_text())
        _, whole = self.train("--set", "parallel.leaves=4",
                              steps=stopped["steps"])
        self.assertEqual(whole["params_hash"], stopped["params_hash"], errors)

    def test_who_does_not_read_keeps_no_run_from_stopping(self):
        for more in (("-n", "1"), ("-n", "2")):
            with self.subTest(more):
                out = self.new_out()
                process = self.start(out, "--quiet", *more,
                                     stderr=self.full_pipe())
                try:
                    self.wait_for_steps(process, out)
                    process.send_signal(signal.SIGINT)
                    process.communicate(timeout=60)
                finally:
                    process.kill()
                    process.wait()
                self.assertEqual(process.returncode, 130)
                summary = json.loads((out / "summary.json").read_text())
                self.assertEqual(summary["stopped_by"], "SIGINT")

    def full_pipe(self):
        """The end of a pipe that takes no byte more, since nobody reads."""
        for end in os.pipe():
            self.addCleanup(os.close, end)
        os.set_blocking(end, False)
        with self.assertRaises(BlockingIOError):
            while True:
                os.write(end, bytes(4096))
        os.set_blocking(end, True)
        return end

    def test_a_second_signal_stops_now(self):
        out = self.new_out()
        process = self.start(out)
        try:
            self.wait_for_steps(process, out)
            # Both are there before the program goes on.
            process.send_signal(signal.SIGSTOP)
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGCONT)
            process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
        self.assertIn(process.returncode, (-signal.SIGINT, -signal.SIGTERM))
        self.assertFalse((out / "summary.json").exists())


if __name__ == "__main__":
    harness.main()
