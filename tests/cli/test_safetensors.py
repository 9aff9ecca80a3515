#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""model.safetensors and the files of a checkpoint, by readers that are not ours.

    test_safetensors.py CADRE [--reference]

The short form reads by the published format (8 bytes of header length, a JSON
header, tensors without holes), and computes params_hash from the file alone.
With --reference the format's own library reads, where Python has it; else the
test is skipped (status 77).
"""

import json
import math
import struct
import sys
import unittest

import harness

REFERENCE = "--reference" in sys.argv
MASK = 2**64 - 1
P1, P2, P3, P4, P5 = (
    0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9,
    0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)


def rotate(x, n):
    return ((x << n) | (x >> (64 - n))) & MASK


def mix(accumulator, lane):
    return rotate((accumulator + lane * P2) & MASK, 31) * P1 & MASK


def xxh64(data, seed):
    """XXH64 of whole 4-byte words, from its specification."""
    n = len(data)
    at = 0
    if n >= 32:
        lanes = [(seed + P1 + P2) & MASK, (seed + P2) & MASK, seed & MASK,
                 (seed - P1) & MASK]
        for four in struct.iter_unpack("<4Q", data[:n // 32 * 32]):
            lanes = [mix(a, lane) for a, lane in zip(lanes, four)]
        at = n // 32 * 32
        h = sum(rotate(a, r) for a, r in zip(lanes, (1, 7, 12, 18))) & MASK
        for a in lanes:
            h = ((h ^ mix(0, a)) * P1 + P4) & MASK
    else:
        h = (seed + P5) & MASK
    h = (h + n) & MASK
    while at + 8 <= n:
        (lane,) = struct.unpack_from("<Q", data, at)
        h = (rotate(h ^ mix(0, lane), 27) * P1 + P4) & MASK
        at += 8
    if at + 4 <= n:
        (word,) = struct.unpack_from("<I", data, at)
        h = (rotate(h ^ (word * P1 & MASK), 23) * P2 + P3) & MASK
    h = (h ^ (h >> 33)) * P2 & MASK
    h = (h ^ (h >> 29)) * P3 & MASK
    return h ^ (h >> 32)


def read(path):
    """The tensors {name: (shape, bytes)} and metadata, every rule checked."""
    content = path.read_bytes()
    (n,) = struct.unpack_from("<Q", content)
    assert n <= 100_000_000 and content[8:9] == b"{"
    header = json.loads(content[8:8 + n])
    metadata = header.pop("__metadata__")
    assert all(isinstance(value, str) for value in metadata.values())
    data = content[8 + n:]
    tensors = {}
    end = 0
    for name, entry in sorted(header.items(),
                              key=lambda item: item[1]["data_offsets"]):
        assert set(entry) == {"dtype", "shape", "data_offsets"}
        assert entry["dtype"] == "F32"
        lo, hi = entry["data_offsets"]
        assert lo == end and hi - lo == 4 * math.prod(entry["shape"])
        tensors[name] = (entry["shape"], data[lo:hi])
        end = hi
    assert end == len(data)
    return tensors, metadata


def params_hash(tensors, layout, buffers=False):
    """Of the parameters; or of the buffers, as buffers_hash has them."""
    quantum = layout["quantum"]
    total = 0
    for segment in layout["segments"]:
        if segment["buffer"] != buffers:
            continue
        shape, data = tensors[segment["name"]]
        assert shape == segment["shape"]
        index = segment["offset"]
        end = index + segment["count"]
        while index < end:
            to = min(end, index - (index - segment["unit_start"]) % quantum +
                     quantum)
            first = index - segment["offset"]
            piece = data[4 * first:4 * (first + to - index)]
            total = (total + xxh64(piece, index)) & MASK
            index = to
    return f"{total:016x}"


class Safetensors(harness.CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.out, cls.summary = cls().train("-n", "2", steps=2)
        step = cls.out / "checkpoints" / "step-2"
        cls.files = [cls.out / "model.safetensors",
                     *sorted(step.glob("*.safetensors"))]

    def test_files_keep_the_published_format(self):
        self.assertEqual(len(self.files), 4)
        for path in self.files:
            tensors, metadata = read(path)
            layout = json.loads(metadata["cadre.layout"])
            self.assertEqual(list(tensors),
                             [s["name"] for s in layout["segments"]])
            self.assertEqual(tensors["fc1.weight"][0], [512, 784])

    def test_params_hash_can_be_computed_from_the_file(self):
        tensors, metadata = read(self.files[0])
        layout = json.loads(metadata["cadre.layout"])
        self.assertEqual(params_hash(tensors, layout),
                         self.summary["params_hash"])
        checkpoint = self.out / "checkpoints/step-2/params.safetensors"
        self.assertEqual(read(checkpoint)[0], tensors)

    def test_buffers_have_a_hash_of_their_own(self):
        out = self.new_out()
        done = self.cadre(
            "train", "resnet18-fashion", "-n", "2", "--steps", 2, "--out", out,
            "--set", f"data.path={self.data}", "--set", "model.width=2",
            "--set", "train.global_batch=16", "--set", "parallel.leaves=2")
        self.assertEqual(done.returncode, 0, done.stderr)
        summary = json.loads((out / "summary.json").read_text())
        tensors, metadata = read(out / "model.safetensors")
        layout = json.loads(metadata["cadre.layout"])
        self.assertIn("layer2.0.downsample.1.running_var", tensors)
        self.assertEqual(params_hash(tensors, layout), summary["params_hash"])
        self.assertEqual(params_hash(tensors, layout, buffers=True),
                         summary["buffers_hash"])
        evaluated = self.cadre("eval", out, "--json")
        self.assertEqual(evaluated.returncode, 0, evaluated.stderr)
        found = json.loads(evaluated.stdout)
        self.assertEqual(found["loss"], summary["eval"]["loss"])

    @unittest.skipUnless(REFERENCE, "a test of its own")
    def test_the_reference_reader_sees_the_same(self):
        import safetensors
        for path in self.files:
            found = dict(safetensors.deserialize(path.read_bytes()))
            tensors, _ = read(path)
            self.assertEqual(set(found), set(tensors))
            for name, (shape, data) in tensors.items():
                self.assertEqual(found[name]["dtype"], "F32")
                self.assertEqual(list(found[name]["shape"]), shape)
                self.assertEqual(bytes(found[name]["data"]), data)


if __name__ == "__main__":
    if REFERENCE:
        try:
            import safetensors  # noqa: F401
        except ImportError:
            print("skipped: Python has no package 'safetensors', the format's "
                  "reference reader")
            sys.exit(77)
    harness.main()
