#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cadre train and eval on a small folder of images.

    test_images.py CADRE IMAGES

IMAGES is a folder with JPEG files to copy.
"""

import json
import pathlib
import random
import shutil
import struct
import sys
import zlib

import harness

IMAGES = pathlib.Path(sys.argv[2])
SIZE = ("model.width=2", "data.side=32", "train.global_batch=12",
        "parallel.leaves=6", "train.log_every=1", "optim.schedule=constant")
CLASSES = ("ants", "bees", "cats")


def png(pixels, side):
    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data
                + struct.pack(">I", zlib.crc32(kind + data)))

    rows = b"".join(b"\0" + pixels[y * side * 3:(y + 1) * side * 3]
                    for y in range(side))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(
        ">IIBBBBB", side, side, 8, 2, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def make_images(folder):
    """Three classes: noise in red, green or blue, and one photograph each."""
    source = random.Random(3)
    for split, n in (("train", 10), ("val", 4)):
        for number, name in enumerate(CLASSES):
            place = folder / split / name
            place.mkdir(parents=True)
            for i in range(n):
                pixels = bytes(noise // 4 + (128 if k % 3 == number else 0)
                               for k, noise in enumerate(source.randbytes(
                                   40 * 40 * 3)))
                (place / f"{i}.png").write_bytes(png(pixels, 40))
            shutil.copy(IMAGES / "photo.jpg", place / "photo.jpg")
    return folder


class Images(harness.CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.images = make_images(cls.folder / "images")

    def arguments(self, *arguments, images=None, steps=3, out=None):
        keys = (*SIZE, f"data.path={images or self.images}")
        return ("train", "resnet50", "--steps", steps, "--out",
                out or self.new_out(),
                *(word for key in keys for word in ("--set", key)), *arguments)

    def run_images(self, *arguments, **more):
        out = more.pop("out", None) or self.new_out()
        done = self.cadre(*self.arguments(*arguments, out=out, **more))
        self.assertEqual(done.returncode, 0, done.stderr)
        return out, done, json.loads((out / "summary.json").read_text())

    def assert_same(self, found, wanted):
        for field in ("params_hash", "buffers_hash", "identity", "loss",
                      "eval"):
            self.assertEqual(found[field], wanted[field], field)

    def test_every_way_gives_the_bits_of_one_rank(self):
        out, _, wanted = self.run_images()
        self.assertEqual(wanted["eval"]["samples"], 15)
        self.assertGreaterEqual(wanted["steps"], 3)
        for way in (("-n", "2", "--threads", "2"),
                    ("-n", "3", "--set", "parallel.mode=zero1")):
            with self.subTest(way):
                self.assert_same(self.run_images(*way)[2], wanted)
        evaluated = json.loads(self.cadre("eval", out, "--json").stdout)
        self.assertEqual(evaluated["loss"], wanted["eval"]["loss"])

    def test_a_run_goes_on_in_the_middle_of_an_epoch(self):
        wanted = self.run_images(steps=5)[2]
        out = self.run_images(steps=2)[0]
        done = self.cadre("train", "--resume", out, "--steps", 5, "-n", 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads((out / "summary.json").read_text())
        self.assertEqual(found["params_hash"], wanted["params_hash"])

    def test_augmentation_is_part_of_the_identity(self):
        augmented = self.run_images(steps=1)[2]
        plain = self.run_images("--set", "data.augment=false", steps=1)[2]
        self.assertNotEqual(augmented["identity"], plain["identity"])
        self.assertNotEqual(augmented["params_hash"], plain["params_hash"])

    def test_a_damaged_image_is_refused_or_skipped(self):
        images = make_images(self.folder / "damaged")
        place = images / "train" / "bees" / "photo.jpg"
        place.write_bytes(place.read_bytes()[:700])
        done = self.cadre(*self.arguments(images=images))
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn(f"{place}' is a JPEG file that cannot be decoded",
                      done.stderr)
        skip = ("--set", "data.damaged=skip")
        _, done, wanted = self.run_images(*skip, images=images)
        self.assertIn(f"{place}' is a JPEG file", done.stderr)
        self.assert_same(
            self.run_images(*skip, "-n", "3", images=images)[2], wanted)

    def test_other_folders_are_refused(self):
        self.refused(2, "'/nonexistent/train'", *self.arguments(
            images="/nonexistent"))
        images = make_images(self.folder / "unlike")
        shutil.rmtree(images / "val" / "cats")
        self.refused(2, "class 'cats' is in train and not in val",
                     *self.arguments(images=images))
        self.refused(2, "data.path is missing", "train", "resnet50")

    def test_sizes_that_make_no_net_are_refused_once(self):
        for ranks in "1", "3":
            for recipe, words, *keys in (
                    ("alexnet", "a multiple of 6", "model.width=8"),
                    ("alexnet", "does not fit", "model.width=6"),
                    ("vgg16", "does not fit", "data.side=16")):
                with self.subTest(recipe, words=words, ranks=ranks):
                    out = self.new_out()
                    self.refused(
                        2, words, "train", recipe, "--out", out, "-n", ranks,
                        *(word for key in (f"data.path={self.images}",
                                           "data.side=32", *keys)
                          for word in ("--set", key)))
                    self.assertFalse(out.exists())

    def test_keys_of_images_are_for_images(self):
        self.refused(2, "reads no folder of images", "train", "mlp-fashion",
                     "--set", "data.side=32", "--set", f"data.path={self.data}")


if __name__ == "__main__":
    harness.main()
