#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""report.html in a browser: what is drawn, in both themes.

    test_browser.py CADRE

Chromium draws a run's report without a window. A copy of the page carries a
script that measures it: boxes and colours of the plots, which then must be
found in the picture. Without Chromium the test is skipped (status 77).
"""

import collections
import itertools
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import unittest
import zlib

import harness
from page import PLOTS, Page

NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)

WIDTH, HEIGHT = 1280, 900

MEASURE = """<script>
const plots = {};
for (const svg of document.querySelectorAll(".plot > svg")) {
  const box = svg.getBoundingClientRect();
  const colours = new Set();
  for (const e of svg.querySelectorAll("path.line, rect, circle")) {
    const style = getComputedStyle(e);
    const wide = parseFloat(style.strokeWidth) >= 1.8;
    const large = e.getBoundingClientRect().width >= 4;
    if (style.opacity != "1" || !large) continue;
    if (wide && style.stroke != "none") colours.add(style.stroke);
    if (style.fill != "none") colours.add(style.fill);
  }
  plots[svg.id] = {
    left: box.left, top: box.top + scrollY, right: box.right,
    bottom: box.bottom + scrollY, colours: [...colours],
    section: svg.closest("section").querySelector("h2").textContent};
}
const root = document.documentElement;
const measured = document.createElement("pre");
measured.id = "measured";
measured.textContent = JSON.stringify({
  plots, dark: matchMedia("(prefers-color-scheme: dark)").matches,
  page: [root.scrollWidth, root.scrollHeight], width: root.clientWidth,
  background: getComputedStyle(document.body).backgroundColor});
document.body.append(measured);
</script>"""

# --- pictures


def paeth(left, above, corner):
    guess = left + above - corner
    by_left, by_above, by_corner = (
        abs(guess - left), abs(guess - above), abs(guess - corner))
    if by_left <= by_above and by_left <= by_corner:
        return left
    return above if by_above <= by_corner else corner


def unfilter(kind, line, above, pixel):
    """A row of bytes, whose filter is taken back."""
    if kind == 0:
        return line
    if kind in (2, 4) and not any(line):
        return above  # as most are
    if kind == 1:
        out = bytearray(len(line))
        for c in range(pixel):
            out[c::pixel] = bytes(
                x & 255 for x in itertools.accumulate(line[c::pixel]))
        return bytes(out)
    if kind == 2:
        return bytes((a + b) & 255 for a, b in zip(line, above))
    out = bytearray(pixel) + line
    above = bytes(pixel) + above
    for i in range(pixel, len(out)):
        guess = ((out[i - pixel] + above[i]) // 2 if kind == 3 else
                 paeth(out[i - pixel], above[i], above[i - pixel]))
        out[i] = (out[i] + guess) & 255
    return bytes(out[pixel:])


class Picture:
    """A PNG of 8 bits per channel, not interlaced, as Chromium writes."""

    def __init__(self, path):
        data = path.read_bytes()
        assert data[:8] == b"\x89PNG\r\n\x1a\n"
        packed = b""
        at = 8
        while at < len(data):
            length, kind = struct.unpack_from(">I4s", data, at)
            content = data[at + 8:at + 8 + length]
            (crc,) = struct.unpack_from(">I", data, at + 8 + length)
            assert crc == zlib.crc32(kind + content)
            if kind == b"IHDR":
                self.width, self.height, *rest = struct.unpack(
                    ">IIBBBBB", content)
                assert rest in ([8, 2, 0, 0, 0], [8, 6, 0, 0, 0]), rest
                self.pixel = 3 if rest[1] == 2 else 4
            elif kind == b"IDAT":
                packed += content
            at += 12 + length
        self.rows = list(self.unpack(zlib.decompress(packed)))

    def unpack(self, raw):
        size = self.width * self.pixel
        above = bytes(size)
        for at in range(0, self.height * (size + 1), size + 1):
            above = unfilter(raw[at], raw[at + 1:at + 1 + size], above,
                             self.pixel)
            yield above

    def colours(self, left, top, right, bottom):
        """How many pixels of a box have each colour."""
        found = collections.Counter()
        for row in self.rows[round(top):round(bottom)]:
            part = row[round(left) * self.pixel:round(right) * self.pixel]
            found.update(zip(*(part[c::self.pixel] for c in range(3))))
        return found


def rgb(text):
    match = re.fullmatch(r"rgb\((\d+), (\d+), (\d+)\)", text)
    assert match, text
    return tuple(map(int, match.groups()))


def pixels_of(found, colour):
    """Of a colour, or one that the eye takes for it."""
    return sum(n for other, n in found.items()
               if max(abs(a - b) for a, b in zip(colour, other)) <= 8)


# --- the browser


class Browser(harness.CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.run_out = cls.folder / "seen"
        subprocess.run(
            [harness.CADRE, "train", "mlp-fashion", "-n", "2", "--threads",
             "1", "--steps", "20", "--out", cls.run_out, "--trace", "15:3",
             "--set", f"data.path={cls.data}", "--set", "train.log_every=1",
             "--set", "train.eval_every=10", "--quiet"],
            check=True, capture_output=True, timeout=120,
            env=harness.environment())
        cls.report = (cls.run_out / "report.html").read_text()
        cls.looks = {theme: cls.look(theme, WIDTH, HEIGHT)
                     for theme in ("light", "dark")}

    @classmethod
    def look(cls, theme, width, height, script=""):
        """The document, what was measured in it, the console, the picture."""
        copy = cls.folder / "copy.html"
        copy.write_text(cls.report.replace(
            "</body>", script + MEASURE + "</body>"))
        shot = cls.folder / f"{theme}-{width}x{height}.png"
        command = [
            BROWSER, "--headless=new", "--disable-gpu", "--hide-scrollbars",
            "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--enable-logging=stderr",
            f"--user-data-dir={cls.folder / 'browser'}",
            f"--window-size={width},{height}", f"--screenshot={shot}",
            "--dump-dom",
            f"--blink-settings=preferredColorScheme={int(theme == 'light')}",
            copy.as_uri()]
        if os.geteuid() == 0:
            command.insert(1, "--no-sandbox")
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=120, env=harness.environment(HOME=str(cls.folder)))
        assert done.returncode == 0 and shot.exists(), done.stderr
        found = re.search(r'<pre id="measured">(.*?)</pre>', done.stdout)
        assert found, done.stdout[-500:] + done.stderr
        console = [line for line in done.stderr.splitlines()
                   if "CONSOLE" in line]
        return done.stdout, json.loads(found[1]), console, shot

    def test_every_part_is_laid_out(self):
        sections = {"plot-loss": "Loss", "plot-throughput": "Throughput",
                    "plot-ranks": "Step times per rank",
                    "plot-rank-bars": "Step times per rank",
                    "plot-overlap": "Overlap of one step",
                    "plot-bytes": "Bytes per step"}
        for theme, (document, seen, _, _) in self.looks.items():
            page = Page(document)
            self.assertEqual(seen["dark"], theme == "dark")
            self.assertEqual(
                {name: plot["section"] for name, plot in
                 seen["plots"].items()}, sections)
            self.assertLessEqual(PLOTS, page.ids)
            below = 0
            for name, plot in seen["plots"].items():
                with self.subTest(theme=theme, plot=name):
                    self.assertGreater(plot["right"] - plot["left"], 800)
                    self.assertGreater(plot["bottom"] - plot["top"], 40)
                    self.assertGreaterEqual(plot["left"], 0)
                    self.assertLessEqual(plot["right"], WIDTH)
                    self.assertGreaterEqual(plot["top"], below)
                    below = plot["bottom"]
            for style in ("main", "band", "r0", "r1", "whole"):
                drawn = [a["d"] for a in page.all("path", style)
                         if "H24" not in a["d"]]
                self.assertTrue(drawn, style)
                for points in drawn:
                    self.assertGreaterEqual(
                        len(re.findall("[ML]", points)), 20, style)
            self.assertIn("2.04 MiB", page.text)

    def test_nothing_scrolls_sideways_and_the_console_is_silent(self):
        for theme, (_, seen, console, _) in self.looks.items():
            self.assertLessEqual(seen["page"][0], seen["width"], theme)
            self.assertEqual(console, [], theme)
        # Nor in a narrow window, where plots scroll by themselves; what the
        # console gets would be heard of.
        _, seen, console, _ = self.look(
            "light", 500, HEIGHT, "<script>console.error('heard')</script>")
        self.assertLess(seen["width"], 640)
        self.assertLessEqual(seen["page"][0], seen["width"])
        self.assertEqual(len(console), 1)
        self.assertIn("heard", console[0])

    def test_the_first_screen_and_all_the_others_are_drawn(self):
        for theme, (_, seen, _, first) in self.looks.items():
            height = seen["page"][1]
            whole = Picture(self.look(theme, WIDTH, height)[3])
            self.assertEqual((whole.width, whole.height), (WIDTH, height))
            screen = Picture(first)
            self.assertEqual((screen.width, screen.height), (WIDTH, HEIGHT))
            found = screen.colours(0, 0, WIDTH, HEIGHT)
            background = rgb(seen["background"])
            self.assertEqual(sum(background) > 3 * 128, theme == "light")
            self.assertGreater(pixels_of(found, background), 100000)
            self.check_plots(whole, theme, seen["plots"])
            self.check_plots(screen, theme, {
                name: plot for name, plot in seen["plots"].items()
                if plot["bottom"] <= HEIGHT})

    def check_plots(self, picture, theme, plots):
        self.assertTrue(plots)
        for name, plot in plots.items():
            found = picture.colours(*(plot[side] for side in (
                "left", "top", "right", "bottom")))
            self.assertGreater(len(found), 20, name)
            self.assertTrue(plot["colours"], name)
            for colour in plot["colours"]:
                with self.subTest(theme=theme, plot=name, colour=colour):
                    self.assertGreater(pixels_of(found, rgb(colour)), 10)


if __name__ == "__main__":
    if BROWSER is None:
        print(f"skipped: none of {', '.join(NAMES)} is installed")
        sys.exit(77)
    harness.main()
