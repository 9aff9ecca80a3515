#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keys, options and YAML files: what is taken, what is refused, and how.

    test_keys.py CADRE
"""

import os

import harness


class Keys(harness.CommandTest):
    def config(self, *arguments, recipe="mlp-fashion"):
        done = self.cadre("train", recipe, "--print-config", *arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def write(self, text):
        path = self.folder / "config.yaml"
        path.write_text(text)
        return path

    def test_a_configuration_fed_back_is_itself(self):
        first = self.config(
            "-n", "3", "--threads", "2", "--steps", "77",
            "--set", "train.seed=18446744073709551615",
            "--set", "optim.lr=0.1234567890123456",
            "--set", "optim.eps=1e-8", "--set", "optim.name=sgd",
            "--set", "parallel.fold=4", "--set", "parallel.bucket_mb=0.05",
            "--set", "data.drop_last=true",
            "--set", "data.path=/a path/it's: #1, \"quoted\"")
        self.assertEqual(self.config(recipe=self.write(first)), first)
        self.assertIn("leaves: 6\n", first)
        self.assertIn("lr: 0.1234567890123456\n", first)

    def test_leaves_follow_from_ranks_and_threads(self):
        self.assertIn("leaves: 6\n", self.config("-n", "3", "--threads", "2"))
        self.assertIn("leaves: 8\n", self.config(
            "-n", "3", "--threads", "2", "--set", "parallel.leaves=8"))

    def test_options_win_over_files(self):
        file = self.write("recipe: mlp-fashion\nsteps: 5\noptim: {lr: 0.5}\n")
        self.assertIn("steps: 5\n", self.config(recipe=file))
        self.assertIn("lr: 0.5\n", self.config(recipe=file))
        changed = self.config("--epochs", "2", "--set", "optim.lr=0.25",
                              recipe=file)
        self.assertNotIn("\nsteps:", changed)
        self.assertIn("epochs: 2\n", changed)
        self.assertIn("lr: 0.25\n", changed)

    def test_an_unknown_key_is_answered_with_the_nearest(self):
        self.refused(2, "'optim.lr'", "train", "mlp-fashion", "--set",
                     "optim.lrr=1")
        self.refused(2, "'parallel.leaves'", "train", "mlp-fashion", "--set",
                     "paralel.leafs=1")
        self.refused(2, "'--steps'", "train", "mlp-fashion", "--step", "1")
        # Not what is near, but not built yet.
        self.refused(2, "did you mean 'sgd'", "train", "mlp-fashion", "--set",
                     "optim.name=lar")
        self.refused(2, "did you mean 'tcp'", "bench", "allreduce",
                     "--transport", "ucp")
        self.refused(2, "did you mean", "trian", "mlp-fashion")

    def test_values_out_of_range_are_refused(self):
        for assignment in (
                "optim.lr=fast", "optim.lr=", "optim.lr=nan", "optim.lr=inf",
                "optim.lr=0x1p3", "optim.lr=1,5", "optim.lr= 1", "optim.lr=-1",
                "optim.beta1=1", "optim.beta2=1.5", "optim.beta1=0.9999995",
                "optim.momentum=0.9999995", "optim.beta2=0.99999995", "optim.momentum=-0.1",
                "train.global_batch=0", "train.global_batch=12.5",
                "train.global_batch=128x", "train.global_batch=9e9",
                "train.seed=-1", "train.seed=18446744073709551616",
                "train.log_every=0", "data.drop_last=yes",
                "data.in_memory=1", "data.damaged=keep", "data.side=2000", "data.augment=on",
                "parallel.leaves=0", "parallel.leaves=65537",
                "parallel.fold=3", "parallel.fold=0", "parallel.fold=none",
                "parallel.overlap=yes", "parallel.mode=zero",
                "parallel.bucket_mb=0", "parallel.timeout_ms=0",
                "optim.name=adam", "parallel.transport=udp",
                "parallel.order=rings",
                "optim.schedule=cosines", "optim.decay=none",
                "optim.min_lr_factor=1.1", "optim.step_factor=2",
                "optim.step_every=-1", "checkpoint.every=-1",
                "checkpoint.keep=some"):
            with self.subTest(assignment):
                key = assignment.split("=")[0]
                self.refused(2, key, "train", "mlp-fashion", "--set",
                             assignment)
        self.refused(2, "KEY=VALUE", "train", "mlp-fashion", "--set", "optim")
        for fold in ("3", "+2", "none"):
            self.refused(2, "deferred, eager, a power of two up to 65536",
                         "train", "mlp-fashion", "--set",
                         f"parallel.fold={fold}")

    def test_paths_are_utf8(self):
        for name in (b"\xff", b"\xc3", b"\xc0\xaf", b"\xed\xa0\x80",
                     b"\xf6\x8c\x8b\x9a", b"\xe2\x82"):
            with self.subTest(name):
                self.refused(2, "no UTF-8", "train", "mlp-fashion", "--set",
                             "data.path=/tmp/" + os.fsdecode(name))
        done = self.cadre("train", "mlp-fashion", "--print-config", "--set",
                          "data.path=/no/caf\u00e9/\u20ac")
        self.assertIn("caf\u00e9/\u20ac", done.stdout)

    def test_what_is_not_built_yet_says_so(self):
        for assignment in (
                "train.threads_per_leaf=2",
                "optim.name=lars", "optim.name=lamb",
                "parallel.mode=zero2", "parallel.mode=fedavg",
                "parallel.transport=ucx"):
            with self.subTest(assignment):
                self.refused(2, "not built yet", "train", "mlp-fashion",
                             "--set", assignment)
        self.refused(2, "has one size", "train", "cnn-fashion", "--set",
                     "model.width=16")
        self.refused(2, "has no attention", "train", "cnn-fashion", "--set",
                     "model.heads=2")
        self.refused(2, "does not read Fashion-MNIST", "train", "vgg16",
                     "--set", "data.in_memory=true")
        self.refused(2, "not built yet", "plan")

    def test_what_is_built_can_be_said(self):
        self.config("--set", "train.precision=bf16", "--set",
                    "parallel.order=canonical", "--set", "parallel.overlap=off",
                    "--set", "parallel.mode=zero1", "--set",
                    "optim.schedule=constant", "--set", "parallel.fold=eager")

    def test_options_out_of_range_are_refused(self):
        for arguments in (("-n", "0"), ("-n", "-1"), ("-n", "two"), ("-n",),
                          ("-n", "5000"), ("--threads", "0"),
                          ("--steps", "0"), ("--epochs", "1.5"),
                          ("--steps", "1", "--epochs", "1"),
                          ("--steps", "1", "--set", "epochs=1"),
                          ("--set", "steps=1", "--set", "epochs=1"),
                          ("--out", ""), ("--out", "x/" * 2000),
                          ("--quiet=yes",), ("--port", "1"), ("twice",)):
            with self.subTest(arguments):
                self.refused(2, "cadre train: ", "train", "mlp-fashion",
                             *arguments)
        self.refused(2, "no recipe", "train")
        self.refused(2, "mlp-fashion", "train", "mlp-fasion")

    def test_yaml_that_makes_no_sense_is_named_with_its_line(self):
        for line, text in (
                (3, "recipe: mlp-fashion\noptim.lr: 1\nx: 1\n"),
                (3, "recipe: mlp-fashion\noptim:\n  lrr: 1\n"),
                (3, "recipe: mlp-fashion\noptim:\n  lr: fast\n"),
                (2, "recipe: mlp-fashion\noptim: [1, 2]\n"),
                (2, "recipe: mlp-fashion\noptim: 3\n"),
                (3, "recipe: mlp-fashion\nsteps: 1\nsteps: 2\n"),
                (3, "recipe: mlp-fashion\nsteps: 1\nepochs: 2\n"),
                (2, "epochs: 2\nsteps: 1\nrecipe: mlp-fashion\n"),
                (2, "steps: 1\nrecipe: nothing\n"),
                (1, "steps: 1\n"),
                (1, ""),
                (1, "- recipe\n"),
                (2, "recipe: mlp-fashion\n[a]: 1\n"),
                (2, "recipe: mlp-fashion\n? {a: 1}\n: 1\n"),
                (2, "recipe: &x mlp-fashion\nsteps: *x\n"),
                (4, "recipe: mlp-fashion\nsteps: 1\n---\nsteps: 2\n"),
                (2, "recipe: mlp-fashion\na: {b: {c: {d: {e: 1}}}}\n"),
                (2, 'recipe: mlp-fashion\nsteps: "1\\0"\n'),
                (2, 'recipe: mlp-fashion\n"steps\\0more": 1\n'),
                (2, 'recipe: mlp-fashion\n"a\\n\\e[2J": 1\n'),
                (2, "recipe: mlp-fashion\n\tsteps: 1\n"),
                (2, "recipe: mlp-fashion\n" + "k" * 200 + ": 1\n")):
            with self.subTest(text):
                file = self.write(text)
                self.refused(2, f"{file}, line {line}: ", "train", file)
        self.refused(2, "'*x' stands for something else", "train",
                     self.write("recipe: &x mlp-fashion\nsteps: *x\n"))
        self.refused(2, "No such file", "train", "none/such.yaml")
        self.refused(2, "cannot read", "train", "missing.yaml")

    def test_what_is_no_regular_file_is_refused_and_not_waited_for(self):
        pipe = self.folder / "pipe.yaml"
        os.mkfifo(pipe)
        self.refused(2, f"'{pipe}': it is no regular file", "train", pipe)
        self.refused(2, "'/dev/null': it is no regular file", "train",
                     "/dev/null")
        self.refused(2, f"'{self.folder}': it is a directory", "train",
                     self.folder)

    def test_the_datas_path_holds_from_any_folder(self):
        real = self.data.resolve()
        for given, kept in (("data", real), ("./data/../data", real),
                            (self.data, real), ("", "''"),
                            ("not/there", self.folder.resolve() / "not/there"),
                            ("/not/there", "/not/there")):
            with self.subTest(given):
                self.assertIn(f"  path: {kept}\n", self.config(
                    "--set", f"data.path={given}"))
        file = self.write("recipe: mlp-fashion\ndata: {path: data}\n")
        self.assertIn(f"  path: {real}\n", self.config(recipe=file))

    def test_a_configuration_that_cannot_run_is_not_shown(self):
        done = self.refused(
            2, "2 ranks but 1 leaves", "train", "mlp-fashion",
            "--print-config", "-n", "2", "--set", "parallel.leaves=1")
        self.assertEqual(done.stdout, "")
        self.refused(2, "train.global_batch", "train", "mlp-fashion",
                     "--print-config", "--set", f"data.path={self.data}",
                     "--set", "train.global_batch=601")

    def test_help_fits_a_screen_and_keys_are_listed(self):
        for command in ("train", "eval", "run", "generate"):
            done = self.cadre(command, "--help")
            self.assertEqual(done.returncode, 0)
            lines = done.stdout.splitlines()
            self.assertLessEqual(len(lines), 24, done.stdout)
            self.assertLessEqual(max(map(len, lines)), 80, done.stdout)
            self.assertIn(f"cadre {command} ", done.stdout)
        listed = self.cadre("train", "--help", "keys").stdout
        for key in ("optim.lr = 0.001", "parallel.fold = deferred",
                    "checkpoint.every"):
            self.assertIn(key, listed)
        for line in listed.splitlines():
            self.assertFalse(line.endswith(": "), line)
        self.assertIn("mlp-fashion", self.cadre("train", "--list").stdout)


if __name__ == "__main__":
    harness.main()
