#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints and cadre train --resume: a run that was stopped, killed or
damaged goes on with the bits of one that never was.

    test_resume.py CADRE
"""

import json
import os
import resource
import shutil
import signal
import subprocess
import time

import harness


def lines_of(out):
    return [json.loads(line)
            for line in (out / "metrics.jsonl").read_text().splitlines()]


def checkpoints_of(out):
    return sorted(path.name for path in (out / "checkpoints").iterdir())


def damage(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


class Resume(harness.CommandTest):
    KEYS = ("--quiet", "--set", "parallel.leaves=6", "--set",
            "train.log_every=1", "--set", "optim.schedule=cosine", "--set",
            "optim.warmup_steps=3")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.whole, cls.summary = cls().train("-n", "2", *cls.KEYS, steps=20)
        # Stopped after step 7 of 20, as the schedule knows.
        cls.stopped, _ = cls().train(
            "-n", "4", *cls.KEYS, "--set", "optim.total_steps=20", "--set",
            "checkpoint.every=5", "--set", "checkpoint.keep=3", steps=7)

    def copy(self):
        out = self.new_out()
        shutil.copytree(self.stopped, out)
        return out

    def resume(self, out, *arguments, status=0):
        done = self.cadre("train", "--resume", out, "--quiet", *arguments)
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def check_is_whole(self, out):
        summary = json.loads((out / "summary.json").read_text())
        for field in ("params_hash", "identity", "loss", "eval", "steps",
                      "reproduce"):
            self.assertEqual(summary[field], self.summary[field], field)
        # Line by line the same, but for times and the number of ranks.
        for ours, theirs in zip(lines_of(out), lines_of(self.whole),
                                strict=True):
            for field in ("step", "loss", "lr", "grad_norm"):
                self.assertEqual(ours[field], theirs[field])

    def test_any_number_of_ranks_goes_on_with_the_same_bits(self):
        for more in (("-n", "3"), ("-n", "1"), ("-n", "6"), ("-n", "2",
                     "--set", "parallel.transport=inproc"),
                     ("-n", "2", "--threads", "2")):
            with self.subTest(more):
                out = self.copy()
                self.resume(out, "--steps", "20", *more)
                self.check_is_whole(out)
                config = (out / "config.yaml").read_text()
                self.assertIn("  leaves: 6\n", config)

    def test_under_a_launcher_and_with_the_recipes_name(self):
        out = self.copy()
        done = self.cadre("run", "-n", "3", "--", harness.CADRE, "train",
                          "mlp-fashion", "--resume", out, "--steps", "20",
                          "--quiet")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check_is_whole(out)

    def test_the_newest_are_kept(self):
        self.assertEqual(checkpoints_of(self.stopped), ["step-5", "step-7"])
        out = self.copy()
        # What a run that died has left behind is removed.
        shutil.copytree(out / "checkpoints" / "step-5",
                        out / "checkpoints" / "step-6.part")
        self.resume(out, "--steps", "20", "--set", "checkpoint.keep=2")
        self.assertEqual(checkpoints_of(out), ["step-15", "step-20"])
        out, _ = self.train("--set", "checkpoint.every=1", "--set",
                            "checkpoint.keep=0", steps=4)
        self.assertEqual(checkpoints_of(out),
                         [f"step-{i}" for i in range(1, 5)])

    def test_a_copy_by_another_name_is_left_alone(self):
        out = self.copy()
        shutil.copytree(out / "checkpoints" / "step-5",
                        out / "checkpoints" / "step-020")
        self.resume(out, "--steps", "20", "--set", "checkpoint.keep=1")
        self.assertEqual(checkpoints_of(out), ["step-020", "step-20"])

    def test_a_damaged_one_is_named_and_an_older_one_taken(self):
        files = sorted(path.name for path in
                       (self.stopped / "checkpoints/step-7").iterdir())
        self.assertEqual(files, ["exp_avg.safetensors",
                                 "exp_avg_sq.safetensors", "manifest.json",
                                 "params.safetensors"])
        for name in files:
            for harm in (damage, os.unlink):
                with self.subTest((name, harm)):
                    out = self.copy()
                    path = out / "checkpoints/step-7" / name
                    harm(path) if name != "manifest.json" or \
                        harm is os.unlink else path.write_text(
                            path.read_text().replace('"step": 7', '"step": 8'))
                    done = self.resume(out, "-n", "2", "--steps", "20")
                    self.assertIn("step-7' is passed over", done.stderr)
                    self.assertIn(name, done.stderr)
                    self.check_is_whole(out)

    def test_without_a_valid_one_the_status_is_4(self):
        out = self.copy()
        for step in (5, 7):
            damage(out / f"checkpoints/step-{step}/params.safetensors")
        for n in ("1", "2"):
            done = self.resume(out, "--steps", "20", "-n", n, status=4)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn("is valid", done.stderr)
            self.assertIn("params.safetensors", done.stderr)
        shutil.rmtree(out / "checkpoints")
        done = self.resume(out, "--steps", "20", status=4)
        self.assertIn("no checkpoint", done.stderr)
        # What is there is left as it was.
        self.assertTrue((out / "summary.json").exists())
        self.assertEqual(len(lines_of(out)), 7)

    def test_what_would_change_bits_is_refused_by_name(self):
        out = self.copy()
        before = (out / "config.yaml").read_bytes()
        for key, value in (("optim.lr", "0.5"), ("train.seed", "2"),
                           ("optim.total_steps", "30"),
                           ("optim.decay", "weights"),
                           ("train.micro_batch", "5")):
            self.refused(2, f"{key} is {value}, but in the run", "train",
                         "--resume", out, "--steps", "20", "--set",
                         f"{key}={value}", "--set", "optim.min_lr_factor=0.5")
        other = self.folder / "other"
        harness.make_data(other, n_train=500)
        self.refused(2, "data is ", "train", "--resume", out, "--steps", "20",
                     "--set", f"data.path={other}")
        self.refused(2, "7 ranks but 6 leaves", "train", "--resume", out,
                     "--steps", "20", "-n", "7")
        self.refused(2, "nothing is left to do", "train", "--resume", out)
        self.refused(2, "leave --out out", "train", "--resume", out, "--out",
                     self.new_out())
        self.refused(2, "mlp-fashion: leave it out", "train", "cnn-fashion",
                     "--resume", out)
        self.refused(2, "config.yaml", "train", "--resume", self.folder)
        self.assertEqual((out / "config.yaml").read_bytes(), before)
        # What cannot change bits may be another.
        self.resume(out, "--steps", "20", "-n", "2", "--set",
                    "parallel.bucket_mb=0.1", "--set", "parallel.fold=eager",
                    "--set", "train.micro_batch=22")
        self.check_is_whole(out)

    def test_what_is_refused_is_not_written_down(self):
        out = self.copy()
        before = (out / "config.yaml").read_bytes()
        for more in ((), ("-n", "2")):
            done = self.resume(out, "--steps", "20", "--set",
                               "optim.total_steps=100", *more, status=2)
            self.assertIn("optim.total_steps is 100", done.stderr)
        self.assertEqual((out / "config.yaml").read_bytes(), before)

    def test_nor_under_a_launcher_however_late_it_is_refused(self):
        out = self.copy()
        before = {path: path.read_bytes() for path in out.iterdir()
                  if path.is_file()}
        other = self.folder / "other"
        harness.make_data(other, n_train=500)
        for words, *more in (
                ("data is ", "--set", f"data.path={other}"),
                ("optim.lr is 0.5", "--set", "parallel.leaves=6", "--set",
                 "optim.lr=0.5"),
                ("nothing is left to do", "--steps", "7")):
            done = self.cadre("run", "-n", "2", harness.CADRE, "train",
                              "--resume", out, "--steps", "20", *more)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(words, done.stderr)
            self.assertEqual({path: path.read_bytes() for path in out.iterdir()
                              if path.is_file()}, before)
        self.assertEqual(self.cadre(
            "run", "-n", "2", harness.CADRE, "train", "--resume", out,
            "--steps", "20").returncode, 0)
        self.check_is_whole(out)

    def test_a_trace_of_steps_that_were_made_is_refused(self):
        out = self.copy()
        for trace, last in (("5:2", 6), ("7:1", 7)):
            self.refused(2, f"to end at step {last}, but the checkpoint",
                         "train", "--resume", out, "--steps", "20", "--trace",
                         trace)
        self.resume(out, "--steps", "20", "--trace", "7:2")
        self.check_is_whole(out)
        events = json.loads((out / "trace.json").read_text())["traceEvents"]
        self.assertEqual({e["args"]["step"] for e in events
                          if "step" in e.get("args", {})}, {8})

    def test_a_folder_without_a_name_is_refused(self):
        for command in (("train", "--resume"), ("report",), ("eval",)):
            self.refused(2, "is empty", *command, "")

    def test_a_new_identity_begins_only_where_leaves_are_given(self):
        out = self.copy()
        self.resume(out, "--steps", "12", "-n", "7", "--set",
                    "parallel.leaves=7")
        summary = json.loads((out / "summary.json").read_text())
        lines = lines_of(out)
        self.assertEqual([line["step"] for line in lines],
                         list(range(1, 13)))
        self.assertEqual([line["step"] for line in lines
                          if "identity" in line], [8])
        self.assertEqual(lines[7]["identity"], summary["identity"])
        self.assertEqual(lines[7]["leaves"], 7)
        self.assertNotEqual(summary["identity"], self.summary["identity"])
        self.assertEqual(summary["leaves"], 7)
        self.assertIsNone(summary["reproduce"])
        # It is the run's from then on.
        self.resume(out, "--steps", "13", "-n", "2")
        summary = json.loads((out / "summary.json").read_text())
        self.assertEqual(summary["leaves"], 7)
        self.assertIsNone(summary["reproduce"])

    def test_checkpoints_are_not_overwritten_by_another_run(self):
        out = self.copy()
        (out / "summary.json").unlink()
        for more in (("-n", "1"), ("-n", "2")):
            self.refused(2, "holds checkpoints of a run that has not ended",
                         *self.train_arguments(*more, out=out))
        self.assertEqual(checkpoints_of(out), ["step-5", "step-7"])

    def test_metrics_have_no_step_twice(self):
        out = self.copy()
        shutil.rmtree(out / "checkpoints/step-7")
        with (out / "metrics.jsonl").open("a") as metrics:
            metrics.write('{"step":8,"loss":1}\nno line\n{"step":9,"lo')
        self.resume(out, "--steps", "20")
        self.check_is_whole(out)

    def stop(self, out, *arguments, number=signal.SIGTERM):
        """Starts a run of 20 steps and stops it under way."""
        process = subprocess.Popen(
            [harness.CADRE, *map(str, arguments)], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env=harness.environment())
        try:
            metrics = out / "metrics.jsonl"
            deadline = time.monotonic() + 60
            while not (metrics.exists() and metrics.stat().st_size > 0):
                self.assertIsNone(process.poll())
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.001)
            process.send_signal(number)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
        return process.returncode, errors

    def test_a_run_stopped_by_a_signal_goes_on(self):
        for number, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
            for n in ("1", "3"):
                with self.subTest((number, n)):
                    out = self.new_out()
                    code, errors = self.stop(
                        out, *self.train_arguments(
                            *self.KEYS, "-n", n, out=out, steps=2000),
                        number=number)
                    self.assertEqual(code, status, errors)
                    steps = json.loads(
                        (out / "summary.json").read_text())["steps"]
                    self.assertLess(steps, 1990)
                    self.assertEqual(checkpoints_of(out), [f"step-{steps}"])
                    self.resume(out, "-n", "2", "--steps", steps + 5)
                    _, whole = self.train(*self.KEYS, "--set",
                                          "optim.total_steps=2000",
                                          steps=steps + 5)
                    summary = json.loads((out / "summary.json").read_text())
                    self.assertEqual(summary["params_hash"],
                                     whole["params_hash"])
                    self.assertIsNone(summary["stopped_by"])

    def test_a_run_stopped_after_its_last_step_is_evaluated(self):
        for n in ("1", "3"):
            with self.subTest(n):
                out = self.copy()
                before = json.loads((out / "summary.json").read_text())
                lines = lines_of(out)
                evaluated = lines[-1]
                # As a signal in the last step leaves it.
                (out / "summary.json").write_text(json.dumps(
                    {**before, "eval": None, "stopped_by": "SIGTERM"}))
                lines[-1] = {name: value for name, value in evaluated.items()
                             if not name.startswith("eval_")}
                (out / "metrics.jsonl").write_text(
                    "".join(json.dumps(line) + "\n" for line in lines))
                self.resume(out, "-n", n)
                after = json.loads((out / "summary.json").read_text())
                for field in ("eval", "steps", "params_hash", "loss",
                              "identity", "stopped_by", "replicas_equal"):
                    self.assertEqual(after[field], before[field], field)
                self.assertEqual(lines_of(out), [*lines[:-1], evaluated])
                self.assertEqual(self.cadre("eval", out).returncode, 0)
                self.refused(2, "nothing is left to do", "train", "--resume",
                             out)

    def test_a_killed_run_goes_on_from_its_last_checkpoint(self):
        out = self.new_out()
        self.stop(out, *self.train_arguments(
            *self.KEYS, "-n", "1", "--set", "optim.total_steps=20", "--set",
            "checkpoint.every=1", out=out, steps=10**6),
            number=signal.SIGKILL)
        kept = [name for name in checkpoints_of(out)
                if not name.endswith(".part")] \
            if (out / "checkpoints").exists() else []
        if not kept:
            self.resume(out, "--steps", "20", status=4)
            return
        steps = max(int(name.removeprefix("step-")) for name in kept) + 3
        self.resume(out, "-n", "3", "--steps", steps)
        _, whole = self.train(*self.KEYS, "--set", "optim.total_steps=20",
                              steps=steps)
        summary = json.loads((out / "summary.json").read_text())
        self.assertEqual(summary["params_hash"], whole["params_hash"])

    def test_a_disk_that_is_full_ends_the_run_and_spoils_nothing(self):
        for n in ("1", "2"):
            with self.subTest(n):
                out = self.copy()
                before = checkpoints_of(out)
                limit = 1 << 20  # less than the parameters
                done = subprocess.run(
                    [harness.CADRE, "train", "--resume", out, "--steps", "20",
                     "-n", n,
                     # Shared memory counts as files do.
                     "--set", "parallel.transport=tcp"],
                    capture_output=True, text=True, timeout=120,
                    env=harness.environment(),
                    preexec_fn=lambda: resource.setrlimit(
                        resource.RLIMIT_FSIZE, (limit, limit)))
                self.assertEqual(done.returncode, 3, done.stderr)
                self.assertIn("File too large", done.stderr)
                self.assertEqual(checkpoints_of(out), before)
                self.resume(out, "--steps", "20", "-n", n)
                self.check_is_whole(out)


if __name__ == "__main__":
    harness.main()
