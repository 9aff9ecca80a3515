#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cadre train, eval and generate with transformers, on a text that is small.

    test_text.py CADRE
"""

import json
import math
import signal
import subprocess

import harness

SIZE = ("model.layers=2", "model.width=24", "model.heads=2", "model.context=16",
        "train.global_batch=12", "train.log_every=5", "parallel.leaves=6",
        "optim.lr=0.01")


def make_tokenizer(folder):
    """GPT-2's two files: a token for each byte, and one for "th"."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = [*map(chr, plain), *(chr(256 + i) for i in range(len(others)))]
    folder.mkdir()
    (folder / "vocab.json").write_text(json.dumps(
        {letter: i for i, letter in enumerate([*letters, "th"])}))
    (folder / "merges.txt").write_text("t h\n")
    return folder


class Text(harness.CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.text = cls.folder / "text"
        cls.text.write_text("In the beginning was the word. " * 150)

    def gpt_arguments(self, *arguments, out=None, steps=10,
                      recipe="gpt-kjv-small"):
        keys = (*SIZE, f"data.path={self.text}")
        return ("train", recipe, "--steps", steps, "--out",
                out or self.new_out(),
                *(word for key in keys for word in ("--set", key)), *arguments)

    def gpt(self, *arguments, steps=10, recipe="gpt-kjv-small"):
        out = self.new_out()
        done = self.cadre(*self.gpt_arguments(*arguments, out=out, steps=steps,
                                              recipe=recipe))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("bits per byte", done.stdout)
        return out, json.loads((out / "summary.json").read_text())

    def test_every_way_gives_the_bits_of_one_rank(self):
        _, wanted = self.gpt()
        for way in (("-n", "2"), ("-n", "3", "--set", "parallel.mode=zero1"),
                    ("-n", "5", "--set", "parallel.transport=tcp"),
                    ("-n", "2", "--threads", "2", "--set",
                     "parallel.transport=inproc")):
            with self.subTest(way):
                _, found = self.gpt(*way)
                for field in ("params_hash", "identity", "loss", "eval"):
                    self.assertEqual(found[field], wanted[field])

    def test_every_recipe_of_text_has_one_rank_s_bits(self):
        for recipe in ("llama-kjv-small", "bert-kjv", "gpt2"):
            with self.subTest(recipe):
                out, wanted = self.gpt(steps=4, recipe=recipe)
                _, found = self.gpt(
                    "-n", "3", "--set", "parallel.mode=zero1", steps=4,
                    recipe=recipe)
                for field in ("params_hash", "identity", "loss", "eval"):
                    self.assertEqual(found[field], wanted[field])
                # A step has 12 samples of 16 tokens, however many have labels.
                line = json.loads(
                    (out / "metrics.jsonl").read_text().splitlines()[-1])
                for field, n in (("samples", 12), ("tokens", 12 * 16)):
                    self.assertTrue(math.isclose(
                        line[field + "_per_second"] * line["step_ms"] / 1000, n))
                evaluated = json.loads(
                    self.cadre("eval", out, "--json").stdout)
                self.assertEqual(evaluated["loss"], wanted["eval"]["loss"])

    def test_what_is_in_the_identity(self):
        _, gpt = self.gpt(steps=1)
        for way in (("model.kv_heads=1", "llama-kjv-small"),
                    ("model.kv_heads=2", "llama-kjv-small"),
                    ("train.label_smoothing=0.1", "gpt-kjv-small"),
                    ("optim.lr=0.01", "bert-kjv")):
            with self.subTest(way):
                _, other = self.gpt("--set", way[0], steps=1, recipe=way[1])
                self.assertNotEqual(other["identity"], gpt["identity"])
                gpt = other

    def test_tokens_and_bits_are_told(self):
        out, summary = self.gpt("--set", "train.eval_every=5")
        self.assertTrue(math.isclose(summary["tokens_per_second"],
                                     16 * summary["samples_per_second"]))
        self.assertEqual(set(summary["eval"]),
                         {"loss", "bits_per_byte", "samples"})
        self.assertTrue(math.isclose(summary["eval"]["bits_per_byte"],
                                     summary["eval"]["loss"] / math.log(2)))
        lines = [json.loads(line) for line in
                 (out / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual([line["step"] for line in lines], [5, 10])
        for line in lines:
            self.assertTrue(math.isclose(line["tokens_per_second"],
                                         16 * line["samples_per_second"]))
            self.assertIn("eval_bits_per_byte", line)
            self.assertNotIn("eval_accuracy", line)
        self.assertIn(b"eval/bits_per_byte",
                      next(out.glob("events.out.*")).read_bytes())
        report = (out / "report.html").read_text()
        self.assertIn("test bits per byte", report)
        self.assertIn(f'<td>{summary["eval"]["bits_per_byte"]:.4f}</td>',
                      report)

        found = json.loads(self.cadre("eval", out, "--json").stdout)
        self.assertEqual(found["bits_per_byte"],
                         summary["eval"]["bits_per_byte"])
        self.assertEqual(found["params_hash"], summary["params_hash"])
        self.assertIn("bits per byte", self.cadre("eval", out).stdout)

    def test_the_command_that_reproduces_a_run_does(self):
        out, summary = self.gpt("-n", "3")
        command = summary["reproduce"].replace(
            "cadre ", f"{harness.CADRE} ", 1) + " --out again"
        subprocess.run(command, shell=True, check=True, timeout=120,
                       cwd=self.folder, env=harness.environment(),
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        again = json.loads((self.folder / "again/summary.json").read_text())
        self.assertEqual(again["params_hash"], summary["params_hash"])

    def test_a_run_goes_on_with_the_same_bits(self):
        constant = ("--set", "optim.schedule=constant")
        _, wanted = self.gpt(*constant)
        out, _ = self.gpt(*constant, steps=5)
        done = self.cadre("train", "--resume", out, "--steps", 10, "-n", "3")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads((out / "summary.json").read_text())
        self.assertEqual(found["params_hash"], wanted["params_hash"])

    def generate(self, *arguments):
        """Bytes, which need not be UTF-8."""
        done = subprocess.run(
            [harness.CADRE, "generate", *map(str, arguments)], timeout=60,
            capture_output=True, env=harness.environment())
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        return done.stdout

    def test_generate_goes_on_with_what_was_learned(self):
        out, summary = self.gpt(steps=250)
        self.assertLess(summary["eval"]["bits_per_byte"], 0.5)
        go_on = (out, "--prompt", "In the ", "--length", 24)
        self.assertEqual(self.generate(*go_on, "--temperature", "0"),
                         b"beginning was the word. \n")
        self.assertEqual(self.generate(*go_on, "--top-k", "1"),
                         b"beginning was the word. \n")
        drawn = self.generate(*go_on)
        self.assertEqual(self.generate(*go_on), drawn)
        wild = (*go_on, "--temperature", "9", "--seed")
        self.assertNotEqual(self.generate(*wild, 3), self.generate(*wild, 4))

    def test_generate_ends_where_its_text_cannot_be_written(self):
        out, _ = self.gpt(steps=1)
        endless = [harness.CADRE, "generate", out, "--prompt", "In",
                   "--length", "1000000000"]
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                endless, stdout=full, stderr=subprocess.PIPE, text=True,
                timeout=60, env=harness.environment())
        self.assertEqual(
            (done.returncode, done.stderr),
            (1, "cadre: cannot write to standard output: No space left on "
                "device\n"))
        # Nobody reads: by the signal, and where that is ignored.
        for restored in (True, False):
            with self.subTest(restored):
                process = subprocess.Popen(
                    endless, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                    restore_signals=restored, env=harness.environment())
                self.assertEqual(len(process.stdout.read(1)), 1)
                process.stdout.close()
                self.addCleanup(process.kill)
                self.assertIn(process.wait(timeout=60),
                              (141, -signal.SIGPIPE))
                self.assertEqual(process.stderr.read(), b"")
                process.stderr.close()

    def test_generate_refuses_what_makes_no_sense(self):
        out, _ = self.gpt(steps=1)
        images, _ = self.train(steps=1)
        prompt = ("--prompt", "In")
        self.refused(2, "--prompt", "generate", out)
        self.refused(2, "--prompt", "generate", out, "--prompt", "")
        self.refused(2, "one run", "generate", *prompt)
        self.refused(2, "none", "generate", "none", *prompt)
        self.refused(2, "is empty", "generate", "", *prompt)
        self.refused(2, "learns no text", "generate", images, *prompt)
        bert, _ = self.gpt(steps=1, recipe="bert-kjv")
        self.refused(2, "fill gaps", "generate", bert, *prompt)
        for option in (("--length", "0"), ("--top-k", "0"), ("--temperature", "-1"),
                       ("--temperature", "hot"), ("--seed", "-1")):
            self.refused(2, option[0], "generate", out, *prompt, *option)
        path = out / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-1])
        self.refused(4, "model.safetensors", "generate", out, *prompt)
        path.unlink()
        self.refused(2, "model.safetensors", "generate", out, *prompt)

    def test_a_file_of_tokens_names_no_tokenizer(self):
        tokenizer = make_tokenizer(self.folder / "tokenizer")
        tokens = self.folder / "tokens"
        cut = ("--set", f"data.tokenizer={tokenizer}")
        out, wanted = self.gpt(*cut, "--set", f"data.cache={tokens}", steps=2)
        written = self.generate(out, "--prompt", "In", "--length", 20)
        alone, found = self.gpt("--set", f"data.path={tokens}", steps=2)
        self.assertEqual(found["params_hash"], wanted["params_hash"])
        prompt = ("--prompt", "In", "--length", 20)
        self.refused(2, "data.tokenizer", "generate", alone, *prompt)
        config = alone / "config.yaml"
        config.write_text(config.read_text().replace(
            "tokenizer: ''", f"tokenizer: '{tokenizer}'"))
        self.assertEqual(self.generate(alone, *prompt), written)

    def test_text_that_makes_no_sense_is_refused(self):
        for keys, words in (
                (("data.path=/nonexistent",), "a file of text"),
                (("data.path=/tmp",), "/tmp"),
                (("model.heads=5",), "model.heads 5"),
                (("model.context=5000",), "model.context 5000"),
                (("model.layers=0",), "model.layers is 0"),
                (("model.kv_heads=1",), "model.kv_heads is 1"),
                (("train.label_smoothing=1",), "train.label_smoothing")):
            with self.subTest(keys):
                self.refused(2, words, *self.gpt_arguments(
                    *(word for key in keys for word in ("--set", key))))


if __name__ == "__main__":
    harness.main()
