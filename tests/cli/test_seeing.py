#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What shows a run: the display, the TensorBoard file, the trace, the report.

    test_seeing.py CADRE

Each file is read by a parser written here from its format.
"""

import fcntl
import json
import os
import pty
import re
import resource
import select
import signal
import struct
import subprocess
import termios
import time

import harness
from page import PLOTS, Page

# --- TFRecord and protobuf, from their descriptions


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


def records_of(data):
    while data:
        length, length_crc = struct.unpack_from("<QI", data)
        assert length_crc == masked(data[:8]), "checksum of a length"
        content, data = data[12:12 + length], data[12 + length:]
        assert len(content) == length, "a record is cut off"
        assert struct.unpack_from("<I", data)[0] == masked(content)
        data = data[4:]
        yield content


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7f) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 0x80:
            return value, at


def fields_of(data):
    """(number, value) of each field of a message."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 1:
            value, at = data[at:at + 8], at + 8
        elif kind == 2:
            length, at = varint(data, at)
            value, at = data[at:at + length], at + length
        elif kind == 5:
            value, at = data[at:at + 4], at + 4
        else:
            raise ValueError(f"kind {kind} of a field")
        assert at <= len(data), "a field is cut off"
        yield key >> 3, value


def events_of(path):
    """(wall time, step, {tag: value}) of each event; the first is the version."""
    for record in records_of(path.read_bytes()):
        event = dict(fields_of(record))
        scalars = {}
        for number, value in fields_of(event.get(5, b"")):
            assert number == 1
            scalar = dict(fields_of(value))
            scalars[scalar[1].decode()] = struct.unpack("<f", scalar[2])[0]
        wall_time = struct.unpack("<d", event[1])[0]
        yield wall_time, event.get(2), event.get(3), scalars


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


# --- a terminal


def run_on_terminal(command, columns, environ, on_output=None):
    """Its status and all it wrote, as bytes."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ,
                struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
        env=environ, start_new_session=True)
    os.close(theirs)
    written = b""
    deadline = time.monotonic() + 120
    try:
        while True:
            assert time.monotonic() < deadline, written[-500:]
            if not select.select([ours], [], [], 1)[0]:
                continue
            try:
                piece = os.read(ours, 65536)
            except OSError:
                break  # the other end is closed
            if not piece:
                break
            written += piece
            if on_output is not None:
                on_output(process, written)
        return process.wait(timeout=60), written
    finally:
        process.kill()
        process.wait()
        os.close(ours)


class Terminal:
    """A screen that knows what the display writes; anything else fails."""

    def __init__(self, columns, data):
        self.lines = [""]
        self.row = self.column = 0
        self.widest = 0
        self.redraws = 0
        token = re.compile(r"\x1b\[(\d*)([A-Za-z])|(\r|\n)|([^\x1b\r\n]+)")
        at = 0
        text = data.decode()
        while at < len(text):
            match = token.match(text, at)
            assert match, repr(text[at:at + 20])
            at = match.end()
            count, command, control, words = match.groups()
            if command:
                self.command(command, int(count or 1))
            elif control == "\r":
                self.column = 0
            elif control == "\n":
                self.row += 1
                while self.row >= len(self.lines):
                    self.lines.append("")
            else:
                self.write(words)
        assert self.widest < columns, self.widest

    def command(self, command, count):
        if command == "A":
            self.redraws += 1
            self.row -= count
            assert self.row >= 0
        elif command == "B":
            self.row += count
            assert self.row < len(self.lines)
        elif command == "K":
            self.lines[self.row] = self.lines[self.row][:self.column]
        elif command == "J":
            self.lines[self.row] = self.lines[self.row][:self.column]
            del self.lines[self.row + 1:]
        else:
            raise AssertionError(f"escape sequence {command}")

    def write(self, words):
        line = self.lines[self.row].ljust(self.column)
        self.lines[self.row] = (line[:self.column] + words +
                                line[self.column + len(words):])
        self.column += len(words)
        # Lines of the block; those that scroll by may be longer.
        if " | " not in words and re.match(r"step|mlp|[\d.]+ ms", words):
            self.widest = max(self.widest, self.column)


class Seeing(harness.CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.run_out = cls.folder / "seen"
        command = [harness.CADRE, "train", "mlp-fashion", "-n", "2",
                   "--threads", "2", "--steps", "30", "--out", cls.run_out,
                   "--set", f"data.path={cls.data}", "--set",
                   "train.log_every=4", "--set", "train.eval_every=15",
                   "--set", "parallel.leaves=8", "--trace", "11:3"]
        done = subprocess.run(command, capture_output=True, text=True,
                              timeout=120, env=harness.environment())
        assert done.returncode == 0, done.stderr
        cls.summary = json.loads((cls.run_out / "summary.json").read_text())
        cls.metrics = [json.loads(line) for line in
                       (cls.run_out / "metrics.jsonl").read_text().splitlines()]

    # --- metrics

    def test_lines_tell_of_every_rank(self):
        for line in self.metrics:
            self.assertEqual(len(line["rank_step_ms"]), 2)
            self.assertEqual(len(line["rank_busy_ms"]), 2)
            for step, busy in zip(line["rank_step_ms"], line["rank_busy_ms"]):
                self.assertLessEqual(busy, step)
                self.assertLessEqual(step, line["step_ms_max"] + 0.001)
                self.assertGreaterEqual(step, line["step_ms_min"] - 0.001)
            self.assertEqual(
                line["rank_busy_ms"][line["slowest_rank"]],
                max(line["rank_busy_ms"]))
            self.assertGreater(line["peak_rss_bytes"], 1 << 20)
            self.assertIn(line["peak_rss_rank"], (0, 1))
            self.assertGreaterEqual(line["hidden_ms"], 0)

    def test_ranks_that_log_at_other_steps_fail_alike(self):
        done = self.cadre(
            "run", "-n", "2", "--", "sh", "-c",
            f"exec {harness.CADRE} train mlp-fashion --steps 3 --out "
            f"{self.new_out()} --set data.path={self.data} --set "
            "train.log_every=$((RANK + 1)) --set parallel.leaves=2")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("rank 1 would log, evaluate or trace other steps than "
                      "rank 0", done.stderr)

    def test_looking_changes_no_bit(self):
        _, plain = self.train("--set", "parallel.leaves=8", steps=30)
        self.assertEqual(plain["params_hash"], self.summary["params_hash"])

    # --- TensorBoard

    def test_the_checksum_is_the_known_one(self):
        self.assertEqual(crc32c(b"123456789"), 0xe3069283)

    def test_tensorboard_has_the_numbers_of_the_metrics(self):
        paths = list(self.run_out.glob("events.out.tfevents.*"))
        self.assertEqual(len(paths), 1)
        events = list(events_of(paths[0]))
        self.assertEqual(events[0][1:3], (None, b"brain.Event:2"))
        self.assertEqual(events[0][3], {})
        self.assertEqual(len(events) - 1, len(self.metrics))
        before = events[0][0]
        for (wall_time, step, version, scalars), line in zip(
                events[1:], self.metrics):
            self.assertIsNone(version)
            self.assertEqual(step, line["step"])
            self.assertGreaterEqual(wall_time, before)
            before = wall_time
            wanted = {tag: f32(line[tag]) for tag in (
                "loss", "lr", "grad_norm", "samples_per_second", "exposed_ms",
                "hidden_ms")}
            if "eval_loss" in line:
                wanted["eval/loss"] = f32(line["eval_loss"])
                wanted["eval/accuracy"] = f32(line["eval_accuracy"])
            self.assertEqual(scalars, wanted)
        self.assertLess(abs(time.time() - before), 3600)

    def test_a_run_in_a_used_folder_leaves_one_file_of_events(self):
        out = self.new_out()
        out.mkdir()
        (out / "events.out.tfevents.0000000001.old").write_bytes(b"old")
        (out / "trace.json").write_text("{}")
        self.train(out=out, steps=2)
        self.assertEqual(len(list(out.glob("events.out.tfevents.*"))), 1)
        self.assertFalse((out / "trace.json").exists())

    # --- trace

    def trace_events(self):
        trace = json.loads((self.run_out / "trace.json").read_text())
        return trace["traceEvents"]

    def test_slices_of_a_lane_nest(self):
        lanes = {}
        for event in self.trace_events():
            self.assertIn(event["ph"], "XiM")
            self.assertGreaterEqual(event["ts"], 0)
            if event["ph"] == "X":
                lanes.setdefault((event["pid"], event["tid"]), []).append(
                    (event["ts"], -event["dur"]))
        self.assertEqual({rank for rank, _ in lanes}, {0, 1})
        for slices in lanes.values():
            ends = []
            for since, length in sorted(slices):
                until = since - length
                while ends and ends[-1] <= since + 1e-6:
                    ends.pop()
                if ends:
                    self.assertLessEqual(until, ends[-1] + 1e-6)
                ends.append(until)

    def test_the_trace_shows_each_leaf_gradient_and_step(self):
        events = self.trace_events()
        for rank in (0, 1):
            mine = [e for e in events if e["pid"] == rank]
            for step in (11, 12, 13):
                now = [e for e in mine if e["ph"] != "M" and
                       e["args"]["step"] == step]
                spans = {e["name"]: (e["ts"], e["ts"] + e["dur"]) for e in now
                         if e["ph"] == "X"}
                whole = spans[f"step {step}"]
                leaves = {e["args"]["leaf"] for e in now if e["cat"] == "leaf"}
                self.assertEqual(len(leaves), 4)
                for e in now:
                    self.assertGreaterEqual(e["ts"], whole[0] - 1e-6)
                    self.assertLessEqual(e["ts"] + e.get("dur", 0),
                                         whole[1] + 1e-6)
                self.assertLessEqual(spans["wait"][1],
                                     spans["update"][0] + 1e-6)
                for leaf in leaves:
                    since, until = spans[f"leaf {leaf}"]
                    ready = [e for e in now if e["cat"] == "grad" and
                             e["args"]["leaf"] == leaf]
                    self.assertEqual({e["args"]["parameter"] for e in ready},
                                     set(range(6)))
                    for e in ready:
                        self.assertTrue(since <= e["ts"] <= until)
            steps = {e["args"]["step"] for e in mine if e["ph"] != "M"}
            self.assertEqual(steps, {11, 12, 13})
        first = [e for e in events if e["pid"] == 0 and
                 e.get("cat") == "leaf"]
        second = [e for e in events if e["pid"] == 1 and
                  e.get("cat") == "leaf"]
        self.assertFalse({e["args"]["leaf"] for e in first} &
                         {e["args"]["leaf"] for e in second})
        names = {e["args"].get("name") for e in events if e["ph"] == "M"}
        self.assertLessEqual({"rank 0", "rank 1", "step", "compute 0"}, names)

    def test_every_chunk_in_flight_is_in_the_trace_and_has_a_lane(self):
        events = self.trace_events()
        chunks = [e for e in events if e.get("cat") == "chunk"]
        moving = [e for e in events if e.get("cat") == "moving"]
        names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events
                 if e["ph"] == "M" and e["name"] == "thread_name"}
        for e in chunks + moving:
            self.assertRegex(names[e["pid"], e["tid"]], r"^in flight \d+$")
        for rank in (0, 1):
            for step in (11, 12, 13):
                mine = [e["args"] for e in chunks if e["pid"] == rank and
                        e["args"]["step"] == step]
                # Each has a number of its own, and goes both ways.
                numbers = [args["exchange"] for args in mine]
                self.assertEqual(sorted(numbers), list(range(len(mine))))
                self.assertEqual({args["gather"] for args in mine},
                                 {False, True})
                self.assertGreater(min(args["bytes"] for args in mine), 0)
                self.assertGreaterEqual(min(args["bucket"] for args in mine), 0)
        # The report shows those of the last step; one more is its legend's.
        page = Page((self.run_out / "report.html").read_text())
        shown = [e for e in chunks if e["args"]["step"] == 13 and
                 e["args"]["gather"]]
        n = len(page.all("rect", "gather")) - 1
        if "lanes of the first" in page.text:
            self.assertTrue(0 < n <= len(shown), n)
        else:
            self.assertEqual(n, len(shown))

    def test_a_trace_that_makes_no_sense_is_refused(self):
        out = self.new_out()
        for text in ("", "5", "5:", ":3", "0:3", "3:0", "-1:3", "a:b", "1:2:3",
                     "1:2x", "9" * 80 + ":1"):
            self.refused(2, "--trace is", *self.train_arguments(
                "--trace", text, out=out))
        self.refused(2, "at most 1000", *self.train_arguments(
            "--trace", "1:1001", out=out))
        self.refused(2, "begin at step 21, but the run has 20 steps",
                     *self.train_arguments("--trace", "21:1", out=out))
        self.assertFalse(out.exists())

    def test_a_trace_without_room_is_left_out(self):
        out = self.new_out()
        limit = 1 << 16  # more than any other file of so small a model
        done = subprocess.run(
            [harness.CADRE, *map(str, self.train_arguments(
                "-n", 2, "--set", "parallel.transport=inproc", "--set",
                "model.width=8", "--trace", "1:20", out=out))],
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=120, env=harness.environment(), restore_signals=False,
            preexec_fn=lambda: resource.setrlimit(
                resource.RLIMIT_FSIZE, (limit, limit)))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("trace.json': File too large", done.stderr)
        names = {path.name for path in out.iterdir()}
        self.assertLessEqual({"summary.json", "model.safetensors",
                              "report.html"}, names)
        self.assertFalse([name for name in names if "trace" in name])

    def test_without_a_wish_there_is_no_trace(self):
        out, _ = self.train(steps=2)
        self.assertFalse((out / "trace.json").exists())
        page = Page((out / "report.html").read_text())
        self.assertIn("Nothing was recorded", page.text)
        self.assertIn("Nothing was sent: the run had one rank.", page.text)

    # --- report

    def test_the_report_has_its_parts_and_numbers(self):
        text = (self.run_out / "report.html").read_text()
        page = Page(text)
        self.assertLessEqual(PLOTS, page.ids)
        for name in PLOTS:
            self.assertIn(f"{name}-title", page.ids)
        for word in (self.summary["identity"], self.summary["params_hash"],
                     self.summary["reproduce"],
                     f'{self.summary["loss"]:.4f}',
                     f'({self.summary["bytes_sent_per_step"]} bytes)',
                     f'({self.summary["formula_bytes_per_step"]} bytes)',
                     f'{self.summary["eval"]["loss"]:.6f}'):
            self.assertIn(word, page.text)
        self.assertEqual(self.summary["bytes_sent_per_step"],
                         self.summary["formula_bytes_per_step"])
        # A point per line, in each line of a plot.
        for style in ("raw", "r0", "r1", "whole"):
            paths = [a["d"] for a in page.all("path", style)
                     if "H24" not in a["d"]]
            self.assertEqual(len(paths), 1, style)
            self.assertEqual(len(re.findall("[ML]", paths[0])),
                             len(self.metrics))
        self.assertEqual(len(page.all("circle", "dot")) - 1, 2)
        # Leaves of the last traced step, on both ranks.
        self.assertEqual(len(page.all("rect", "ready")) - 1, 8 * 6)
        # Nothing comes from elsewhere, and nothing runs.
        self.assertNotRegex(text, r"(?i)<script|<link|<img|https?:|url\(|@import")
        self.assertIn("prefers-color-scheme:dark", text)

    def test_a_report_built_again_is_the_same(self):
        path = self.run_out / "report.html"
        before = path.read_bytes()
        path.unlink()
        done = self.cadre("report", self.run_out)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout.strip(), str(path))
        self.assertEqual(path.read_bytes(), before)

    def copy_of_the_run(self):
        out = self.new_out()
        out.mkdir()
        for name in ("config.yaml", "metrics.jsonl", "summary.json"):
            (out / name).write_bytes((self.run_out / name).read_bytes())
        return out

    def report_of(self, out):
        done = self.cadre("report", out)
        self.assertEqual(done.returncode, 0, done.stderr)
        return Page((out / "report.html").read_text())

    def test_a_run_that_has_not_ended_has_a_report(self):
        out = self.copy_of_the_run()
        (out / "summary.json").unlink()
        with open(out / "metrics.jsonl", "a") as metrics:
            metrics.write('{"step":31,"lo')  # being written
        page = self.report_of(out)
        self.assertIn("has not ended", page.text)
        (out / "metrics.jsonl").write_text("")
        self.assertLessEqual({"plot-loss"}, self.report_of(out).ids)

    def test_what_files_say_cannot_become_markup(self):
        out = self.copy_of_the_run()
        evil = '<script>alert("x")</script>&'
        summary = dict(self.summary, reproduce=evil, transport=evil,
                       stopped_by=evil, loss=None, fold=1e300, steps="many")
        (out / "summary.json").write_text(json.dumps(summary))
        page = self.report_of(out)
        self.assertIn(evil, page.text)
        self.assertEqual([t for t, _ in page.elements if t == "script"], [])

    def test_skipped_steps_are_gaps_and_long_runs_no_longer_a_page(self):
        out = self.copy_of_the_run()
        line = dict(self.metrics[0])
        n = 20000
        with open(out / "metrics.jsonl", "w") as metrics:
            for step in range(1, n + 1):
                line["step"] = step
                line["loss"] = None if step == n // 2 else step % 7 / 7
                metrics.write(json.dumps(line) + "\n")
        page = self.report_of(out)
        raw = [a["d"] for a in page.all("path", "raw") if "H24" not in a["d"]]
        self.assertEqual(raw[0].count("M"), 2)
        self.assertLess(len(re.findall("[ML]", raw[0])), 2 * 920)
        self.assertLess((out / "report.html").stat().st_size, 400000)

    def test_what_is_no_run_or_damaged_is_refused(self):
        self.refused(2, "config.yaml", "report", self.folder / "none")
        self.refused(2, "one run is wanted", "report")
        out = self.copy_of_the_run()
        (out / "metrics.jsonl").unlink()
        self.refused(2, "no metrics.jsonl", "report", out)
        lines = (self.run_out / "metrics.jsonl").read_text().splitlines()
        for bad in ('{"step":', "7", "[]", '{"step":"x","loss":1}',
                    '{"step":0,"loss":1}', "\xff"):
            lines[2] = bad
            (out / "metrics.jsonl").write_bytes(
                ("\n".join(lines) + "\n").encode("latin-1"))
            done = self.refused(4, "line 3", "report", out)
            self.assertIn("metrics.jsonl", done.stderr)
        for name in ("summary.json", "trace.json"):
            out = self.copy_of_the_run()
            for bad in ("{\n\n7}", "[]", ""):
                (out / name).write_text(bad)
                done = self.refused(4, name, "report", out)
                self.assertIn("line", done.stderr)
        (out / "trace.json").write_text('{"traceEvents":[7,{"cat":"leaf"},'
                                        '{"cat":"leaf","args":{"step":1}}]}')
        (out / "summary.json").write_text("{}")
        self.report_of(out)

    # --- display

    def terminal_environ(self, **more):
        environ = harness.environment(TERM="xterm", **more)
        for name in ("CI", "NO_COLOR"):
            if name not in more:
                environ.pop(name, None)
        return environ

    def on_terminal(self, columns, *arguments, steps=60, on_output=None,
                    **more):
        command = [harness.CADRE, *map(str, self.train_arguments(
            "--set", "train.log_every=10", *arguments, steps=steps))]
        return run_on_terminal(command, columns,
                               self.terminal_environ(**more), on_output)

    def test_three_lines_are_redrawn_in_place(self):
        for columns, more in ((80, ()), (132, ("-n", "2")), (40, ()), (30, ())):
            with self.subTest(columns=columns, more=more):
                status, written = self.on_terminal(
                    columns, "--set", "train.eval_every=30", *more)
                self.assertEqual(status, 0, written)
                screen = Terminal(columns, written)
                self.assertGreaterEqual(screen.redraws, 2)
                at = [i for i, line in enumerate(screen.lines)
                      if line.startswith("step 60/60") and "test" not in line]
                self.assertEqual(len(at), 1, screen.lines)
                run, state, speed = screen.lines[at[0] - 1:at[0] + 2]
                self.assertIn("ETA 00:00:00", run)
                self.assertIn(" ms", speed)
                if columns >= 40:
                    self.assertRegex(state, r"100\.0%   loss \d\.\d{4}")
                if columns >= 80:
                    self.assertIn("mlp-fashion   ddp", run)
                    self.assertIn("100.0%   loss ", state)
                    self.assertRegex(state, r"\([+-]\d+\.\dz\)")
                    self.assertIn("#", state)
                    self.assertIn("comm ", speed)
                if columns > 100:
                    self.assertRegex(speed, r"mem [\d.]+ MiB \(r[01]\)")
                    self.assertRegex(speed, r"slowest r[01] [+-]\d+%")
                evaluations = [line for line in screen.lines
                               if "test loss" in line]
                self.assertEqual(len(evaluations), 2)
                # What comes after the display stands below it; under a
                # launcher it comes by another way, and maybe earlier.
                if not more:
                    self.assertIn("60 steps, loss", screen.lines[at[0] + 2])

    def test_the_cursor_is_never_hidden(self):
        _, written = self.on_terminal(80)
        self.assertNotIn(b"\x1b[?", written)

    def test_plain_text_where_escapes_are_not_wanted(self):
        for more in ({"NO_COLOR": "1"}, {"CI": "true"}, {"TERM": "dumb"}):
            environ = dict(self.terminal_environ(), **more)
            command = [harness.CADRE, *map(str, self.train_arguments(
                "--set", "train.log_every=10"))]
            status, written = run_on_terminal(command, 80, environ)
            self.assertEqual(status, 0)
            self.assertNotIn(b"\x1b", written, more)
            self.assertIn(b"step 10/20 | loss ", written)
        done = self.cadre(*self.train_arguments(
            "-n", "2", "--set", "train.log_every=10"))
        self.assertNotIn("\x1b", done.stderr + done.stdout)
        self.assertRegex(
            done.stderr, r"step 20/20 \| loss [\d.]+ (\([+-][\d.]+z\))?\| norm "
            r"[\d.]+ (\([+-][\d.]+z\))?\| lr [\d.e-]+ \| [\d.]+ ms \| \d+ "
            r"samples/s \| comm [\d.]+%.* \| mem .* \| slowest r[01] [+-]\d+% "
            r"\| eta 00:00:00\n")

    def test_quiet_shows_nothing_on_a_terminal(self):
        status, written = self.on_terminal(80, "--quiet")
        self.assertEqual(status, 0)
        self.assertNotIn(b"\x1b", written)
        self.assertNotIn(b"step ", written.replace(b"60 steps", b""))

    def test_ctrl_c_is_answered_and_the_display_goes_on_below(self):
        sent = []

        def interrupt(process, written):
            if not sent and b"loss" in written:
                sent.append(os.getpid())
                process.send_signal(signal.SIGINT)

        status, written = self.on_terminal(80, steps=10**7, on_output=interrupt)
        self.assertEqual(status, 130, written[-500:])
        screen = Terminal(80, written)
        answers = [line for line in screen.lines
                   if "finishing the step, then saving; again: stop now"
                   in line]
        self.assertEqual(len(answers), 1, screen.lines)
        self.assertIn("until stopped", written.decode())


if __name__ == "__main__":
    harness.main()
