#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Requests that make no sense: one sentence, the right status, no traces.

    test_refusals.py CADRE
"""

import os
import pathlib
import resource
import shutil
import socket
import subprocess

import harness


class Refusals(harness.CommandTest):
    def broken_data(self, change):
        folder = self.folder / "broken"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.data, folder)
        change(folder)
        return folder

    def refused_data(self, status, words, change):
        """As one rank, as two processes, as two threads."""
        folder = self.broken_data(change)
        for more in (("-n", "1"), ("-n", "2"),
                     ("-n", "2", "--set", "parallel.transport=inproc")):
            with self.subTest(more):
                out = self.new_out()
                self.refused(status, words, "train", "mlp-fashion", "--out",
                             out, "--set", f"data.path={folder}", *more)
                self.assertFalse(out.exists())

    def test_missing_data(self):
        self.refused_data(2, "train-images", lambda folder: (
            folder / "train-images-idx3-ubyte").unlink())
        self.refused_data(2, "t10k-labels", lambda folder: (
            folder / "t10k-labels-idx1-ubyte").unlink())

    def test_cut_data(self):
        def cut(folder):
            path = folder / "train-images-idx3-ubyte"
            path.write_bytes(path.read_bytes()[:-1])
        self.refused_data(4, "train-images", cut)

    def test_a_pipe_in_a_files_place(self):
        for name in ("train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"):
            def spoil(folder, name=name):
                (folder / name).unlink()
                os.mkfifo(folder / name)
            self.refused_data(2, f"{name}': it is no regular file", spoil)

    def test_a_bad_magic_number(self):
        def spoil(folder):
            path = folder / "t10k-images-idx3-ubyte"
            path.write_bytes(b"\x01" + path.read_bytes()[1:])
        self.refused_data(4, "t10k-images", spoil)

    def test_a_label_out_of_range(self):
        def spoil(folder):
            path = folder / "train-labels-idx1-ubyte"
            path.write_bytes(path.read_bytes()[:-1] + b"\x0a")
        self.refused_data(4, "train-labels", spoil)

    def test_more_ranks_than_leaves(self):
        for more in ((), ("--set", "parallel.transport=inproc")):
            out = self.new_out()
            self.refused(2, "8 ranks but 6 leaves", "train", "mlp-fashion",
                         "-n", "8", "--out", out, "--set",
                         "parallel.leaves=6", *more)
            self.assertFalse(out.exists())

    def test_a_batch_larger_than_the_data(self):
        self.refused(2, "train.global_batch", *self.train_arguments(
            "--set", "train.global_batch=601"))

    def test_a_finished_run_is_not_overwritten(self):
        out, _ = self.train(steps=1)
        before = (out / "summary.json").read_bytes()
        self.refused(2, "finished run", *self.train_arguments(out=out))
        self.refused(2, "finished run",
                     *self.train_arguments("-n", "2", out=out))
        self.assertEqual((out / "summary.json").read_bytes(), before)

    def test_a_folder_that_cannot_be_made(self):
        file = self.folder / "file"
        file.write_text("")
        self.refused(2, "cannot make the folder",
                     *self.train_arguments(out=file / "run"))

    def test_an_environment_that_makes_no_sense(self):
        for environ in ({"RANK": "abc"}, {"RANK": "5", "WORLD_SIZE": "2"},
                        {"RANK": "-1", "WORLD_SIZE": "2"}, {"RANK": "0"},
                        {"RANK": "0", "WORLD_SIZE": "2"},
                        {"RANK": "0", "WORLD_SIZE": "2",
                         "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0x1"}):
            with self.subTest(environ):
                self.refused(2, "cadre train: ", *self.train_arguments(),
                             **environ)

    def test_a_port_in_use(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            self.refused(
                2, str(port), *self.train_arguments(), RANK="0",
                WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))

    def test_ranks_that_cannot_start_leave_no_folder(self):
        for n_files in (8, 12, 16):
            with self.subTest(n_files):
                out = self.new_out()
                done = subprocess.run(
                    [harness.CADRE, *map(
                        str, self.train_arguments("-n", 2, out=out))],
                    capture_output=True, text=True, timeout=120,
                    env=harness.environment(),
                    preexec_fn=lambda n=n_files: resource.setrlimit(
                        resource.RLIMIT_NOFILE, (n, n)))
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertFalse(out.exists())

    def test_what_does_not_go_with_a_launcher(self):
        alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": "1"}
        self.refused(2, "-n 2", *self.train_arguments("-n", "2"), **alone)
        self.refused(2, "inproc", *self.train_arguments(
            "--set", "parallel.transport=inproc"), **alone)

    def test_eval_of_what_is_not_there(self):
        self.refused(2, "none", "eval", "none")
        self.refused(2, "run", "eval")
        out, _ = self.train(steps=1)
        (out / "model.safetensors").unlink()
        self.refused(2, "model.safetensors", "eval", out)

    def test_eval_of_a_damaged_model(self):
        out, _ = self.train(steps=1)
        path = out / "model.safetensors"
        whole = path.read_bytes()
        for name, damaged in (("empty", b""), ("cut", whole[:-1]),
                              ("header", b"\xff" * 8 + whole[8:]),
                              ("bit", whole[:-1] + bytes([whole[-1] ^ 1]))):
            with self.subTest(name):
                path.write_bytes(damaged)
                self.refused(4, "model.safetensors", "eval", out)

    def test_output_that_is_lost(self):
        out, _ = self.train(steps=1)
        inproc = ("--set", "parallel.transport=inproc", "-n", "2")
        for arguments in (
                ("--help",), ("--version",), ("train", "--help"),
                ("train", "--help", "keys"), ("train", "--list"),
                ("run", "--help"), ("eval", "--help"),
                ("train", "mlp-fashion", "--print-config"),
                ("eval", out), ("eval", out, "--json"),
                self.train_arguments("--quiet", steps=1),
                self.train_arguments("--quiet", "--json", steps=1),
                self.train_arguments("--quiet", "-n", "2", steps=1),
                self.train_arguments("--quiet", *inproc, steps=1)):
            with self.subTest(arguments), open("/dev/full", "w") as full:
                done = subprocess.run(
                    [harness.CADRE, *map(str, arguments)], stdout=full,
                    stderr=subprocess.PIPE, text=True, timeout=60,
                    cwd=self.folder, env=harness.environment())
                self.assertEqual(
                    (done.returncode, done.stderr),
                    (1, "cadre: cannot write to standard output: "
                        "No space left on device\n"))

    def test_lost_output_does_not_hide_a_refusal(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([harness.CADRE], stdout=full,
                                  stderr=subprocess.DEVNULL, timeout=60)
        self.assertEqual(done.returncode, 2)

    def test_nothing_is_left_behind(self):
        left = [p for p in pathlib.Path(self.folder).rglob("*.part")]
        self.assertEqual(left, [])


if __name__ == "__main__":
    harness.main()
