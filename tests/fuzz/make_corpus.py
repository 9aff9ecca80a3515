#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of the fuzz targets' corpora, one file per input.

    make_corpus.py                 into corpus/ beside this file

Inputs of faults that were found are kept there too, under names of their own;
they are left alone.
"""

import gzip
import json
import pathlib
import struct

CORPUS = pathlib.Path(__file__).parent / "corpus"

HEADER, ZEROS, RAW, MOVE = b"\0", b"\1", b"\2", b"\3"


def header(*patches, checked=False):
    """A record of fuzz_frames.c: the next header, with bytes changed."""
    return (HEADER + bytes([checked, len(patches)])
            + b"".join(bytes(p) for p in patches))


def frames():
    def zeros(n):
        return ZEROS + bytes([n // 2])

    whole = (header() + zeros(40) + header() + header() + zeros(24)
             + header() + zeros(302) + RAW + b"\1\0")
    example = struct.pack("<4sIQBBBBiQQQQiI", b"CDFR", 1, 7, 1, 0, 0, 0, -1,
                          1, 10, 0, 40, 1, 0)
    yield "all-frames", b"\1" + whole + MOVE
    yield "cut", b"\1" + header() + zeros(20)
    yield "checksum-is-wrong", b"\1" + header(checked=True) + zeros(44) + MOVE
    yield "other-call", b"\1" + header((16, 5)) + MOVE
    yield "other-order", b"\1" + header((19, 2)) + MOVE
    yield "other-generation", b"\1" + header((8, 1)) + MOVE
    yield "payload-of-4-gib", b"\1" + header((52, 1)) + zeros(510) + MOVE
    yield "http", b"\1" + RAW + b"\x20" + b"GET / HTTP/1.1\r\nHost: cadre\r\n\r\n"
    yield "header", b"\0\1" + example
    yield "header-with-broken-check", b"\0\0" + example


def handshake():
    hub, rank, applicant, messages = b"\0", b"\1", b"\2", b"\3"
    # The way of proof; how far it goes; patches of hello, proof and join.
    for way, name in enumerate(("user", "secret", "none")):
        honest = bytes([way, 1, 0, 0, 0])
        yield f"joins-by-{name}", hub + honest
        yield f"comes-by-{name}", rank + bytes([way, 2, 0, 0])
        yield f"is-answered-by-{name}", applicant + bytes([way, 1, 0])
    yield "joins-in-another-way", hub + bytes([1, 1, 1, 4, 1, 0, 0])
    yield "proof-is-wrong", hub + bytes([1, 1, 0, 1, 5, 128, 0])
    yield "join-is-wrong", hub + bytes([1, 1, 0, 0, 1, 8, 9])
    yield "answer-is-wrong", applicant + bytes([1, 1, 1, 60, 2])
    yield "http", hub + b"\1\0\x40GET / HTTP/1.1\r\n\r\n"
    yield "tls-hello", hub + b"\1\0\x40\x16\x03\x01\x02\0\1\0\x01\xfc\x03\x03"

    def message(kind, payload):
        return b"CDH2" + struct.pack("<II", kind, len(payload)) + payload

    def text(word, nbytes):
        return word.encode().ljust(nbytes, b"\0")

    join = struct.pack("<6I", 1, 2, 1000, 10000, 99, 2) + text(
        "here", 64) + text("127.0.0.1:5", 80) + text("m/1/2/3", 80) + text(
        "@a", 80)
    verdict = struct.pack("<iI", -41, 2) + b"rank 2 is lost"
    welcome = bytes(16) + struct.pack("<QIII", 7, 500, 2, 2) + text(
        "a:1", 80) + text("b:2", 80)
    every = (message(1, join) + message(2, b"") + message(3, verdict)
             + message(4, b"") + message(5, welcome)
             + message(6, struct.pack("<I", 3)) + message(7, verdict))
    yield "all-messages", messages + b"\1\xff" + every
    yield "message-in-two-pieces", messages + b"\0\x05" + message(7, verdict)
    yield "welcome-of-too-many", messages + b"\1\0" + message(
        5, bytes(16) + struct.pack("<QIII", 7, 500, 1, 9999))
    yield "message-of-4-gib", messages + b"\0\0CDH2" + b"\7\0\0\0" + b"\xff" * 9


def idx():
    labels = struct.pack(">II", 0x801, 5) + bytes(range(5))
    images = struct.pack(">IIII", 0x803, 2, 3, 4) + bytes(range(24))
    packed = gzip.compress(images, mtime=0)
    yield "labels", b"\0" + labels
    yield "images", b"\2" + images
    yield "packed", b"\2" + packed
    yield "packed-and-cut", b"\2" + packed[:-6]
    yield "packed-and-damaged", b"\2" + packed[:20] + b"\xff" + packed[21:]
    yield "packed-in-two", b"\2" + b"".join(
        gzip.compress(part, mtime=0) for part in (images[:20], images[20:]))
    yield "packed-and-junk", b"\2" + packed + b"junk"
    yield "cut", b"\2" + images[:-3]
    yield "goes-on", b"\0" + labels + b"\0"
    yield "of-16-exbibytes", b"\2" + struct.pack(">I", 0x803) + b"\xff" * 12
    yield "empty", b"\0"


def config():
    keys, file = b"\0", b"\1"
    yield "keys", keys + b"""\
train.global_batch=63
train.seed=18446744073709551615
optim.name=sgd
optim.lr=0.1
optim.momentum=0.9
parallel.fold=4
parallel.order=ring
parallel.transport=tcp
parallel.leaves=8
data.path=/a path/with: a "colon" # and more
data.drop_last=true
steps=12
"""
    yield "keys-that-are-refused", keys + b"""\
optim.lr=nan
optim.lr=1e999
optim.lr=0x1p3
train.seed=-1
train.global_batch=0
steps=99999999999999999999
parallel.fold=3
parallel.order=rings
no.such.key=1
recipe=mlp-fashion
=
"""
    yield "path-of-odd-characters", keys + (
        "data.path=\u0085\u2028\ufeff\t'\"\\~ äöü\U0001f600").encode()
    yield "path-of-no-utf-8", keys + b"data.path=\xff\xfe/\x80"
    yield "file", file + b"""\
recipe: mlp-fashion
epochs: 2
train:
  global_batch: 64
optim: {name: adamw, lr: 1e-3}
parallel:
  order: "ring"
  bucket_mb: 0.5
data: {path: 'it''s here'}
"""
    yield "file-without-recipe", file + b"steps: 3\n"
    yield "file-of-lists", file + b"recipe: mlp-fashion\ntrain: [1, [2]]\n"
    yield "file-of-two-documents", file + b"recipe: mlp-fashion\n---\na: b\n"
    yield "file-with-anchors", file + b"recipe: &a mlp-fashion\nsteps: *a\n"
    yield "file-too-deep", file + b"{a: {b: {c: {d: {e: {f: 1}}}}}}"
    yield "file-that-is-no-yaml", file + b"recipe: 'mlp\n\t: %@`"
    yield "file-key-with-nul", file + b'recipe: mlp-fashion\n"steps\\0a": 3\n'
    yield "file-in-utf-16", file + "recipe: mlp-fashion\n".encode("utf-16")


NAMES = ("CADRE_RANK", "CADRE_WORLD_SIZE", "CADRE_LOCAL_RANK",
         "CADRE_LOCAL_WORLD_SIZE", "CADRE_STORE", "RANK", "WORLD_SIZE",
         "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
         "CADRE_SECRET_FD", "CADRE_SECRET_FILE", "CADRE_AUTH")


def environment():
    def variables(**values):
        return b"".join(bytes([NAMES.index(name)]) + value.encode() + b"\n"
                        for name, value in values.items())

    ours = dict(CADRE_RANK="1", CADRE_WORLD_SIZE="4", CADRE_LOCAL_RANK="1",
                CADRE_LOCAL_WORLD_SIZE="2")
    theirs = dict(RANK="1", WORLD_SIZE="4", MASTER_ADDR="10.0.0.1",
                  MASTER_PORT="29500")
    yield "ours", variables(**ours, CADRE_STORE="fd:5", CADRE_SECRET_FD="6")
    yield "ours-by-tcp", variables(**ours, CADRE_STORE="tcp:[::1]:99",
                                   CADRE_SECRET_FILE="/a/file")
    yield "theirs", variables(**theirs, LOCAL_RANK="1", LOCAL_WORLD_SIZE="2")
    yield "theirs-without-local-size", variables(**theirs, LOCAL_RANK="3")
    yield "both-and-unlike", variables(**ours, CADRE_STORE="fd:5", RANK="2")
    yield "alone", variables(CADRE_AUTH="none")
    yield "numbers-that-are-none", variables(RANK="0x1", WORLD_SIZE="+4")
    yield "local-rank-beyond", variables(**theirs, LOCAL_RANK="4")
    yield "host-too-long", variables(**{**theirs, "MASTER_ADDR": "h" * 400})


def safetensors():
    def tensor(shape, begin, end, dtype="F32"):
        return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}

    good = {"__metadata__": {"format": "pt"}, "w": tensor([2, 3], 0, 24),
            "b": tensor([], 24, 28)}
    variants = {
        "model": good,
        "tensor-is-missing": {"w": good["w"]},
        "another-shape": {**good, "w": tensor([3, 2], 0, 24)},
        "another-type": {**good, "b": tensor([], 24, 28, "I64")},
        "beyond-the-file": {**good, "b": tensor([], 1 << 62, (1 << 62) + 4)},
        "backwards": {**good, "b": tensor([], 28, 24)},
        "offsets-are-words": {**good, "b": tensor([], "24", None)},
        "header-is-a-list": [good],
    }
    for name, value in variants.items():
        yield name, b"\1" + json.dumps(value).encode()
    text = json.dumps(good).encode()
    yield "file", b"\0" + struct.pack("<Q", len(text)) + text + bytes(28)
    yield "header-of-16-exbibytes", b"\0" + b"\xff" * 8 + text
    yield "header-of-nothing", b"\0" + bytes(8)
    yield "deep", b"\1" + b"[" * 3000
    yield "shorter-than-a-length", b"\0abc"


def picture():
    images = CORPUS.parents[1] / "data" / "images"
    for name in ("photo.jpg", "progressive.jpg", "restarts.jpg", "ink.jpg",
                 "turned-7.jpg", "interlaced.png", "palette.png", "deep.png",
                 "bits.png"):
        content = (images / name).read_bytes()
        yield name, content
        yield f"cut-{name}", content[:len(content) * 2 // 3]


def tokens():
    # A file's header ends in a hash that this script does not compute: those
    # of whole files come from what was found.
    head = b"CDTOKENS" + struct.pack("<IIQQQQQQ", 1, 2, 500, 4, 0, 9, 0, 0)
    yield "file-with-broken-check", b"\0" + head + bytes(8)
    yield "file-cut", b"\0" + head[:40]
    yield "merges", b"\1#version: 0.2\na a\naa aa\na b\naa b\n"
    yield "merges-of-nothing", b"\1a b\nx y\n"
    yield "merges-without-end", b"\1a a\r\naa b"
    yield "merges-of-text", b"\1a  a"
    yield "vocabulary", b"\2" + json.dumps(
        {chr(0x21 + i % 90) * (i // 90 + 1): i for i in range(300)}).encode()
    yield "vocabulary-deep", b"\2" + b"[" * 3000
    yield "vocabulary-of-lists", b"\2[]"


# As fuzz_net.c has them.
KINDS = """linear conv2d maxpool2d avgpool2d global_avgpool2d batch_norm2d
    layer_norm rms_norm local_response_norm relu gelu silu swiglu dropout
    residual shortcut add embedding positions causal_attention attention rotary
    unembedding""".split()
BF16, GAPS, SMOOTHING = 2, 4, 8


def net():
    def layer(kind, *fields):
        return bytes([KINDS.index(kind), *fields])

    def linear(width, no_bias=0):
        return layer("linear", width, no_bias)

    def conv2d(width, kernel, stride=0, padding=0, dilation=0, groups=0,
               no_bias=0):
        return layer("conv2d", width, kernel, stride, padding, dilation,
                     groups, no_bias)

    def pool(kind, kernel, stride=0, padding=0):
        return layer(kind, kernel, stride, padding)

    def images(flags, n_samples, channels, height, width, *layers):
        return (bytes([flags, n_samples - 1, 9, channels - 1, height - 1,
                       width - 1]) + b"".join(layers))

    def texts(flags, n_samples, n_tokens, *layers):
        return (bytes([flags | 1, n_samples - 1, 29, n_tokens - 1])
                + b"".join(layers))

    def block(width, *layers):
        return (layer("residual") + layer("layer_norm") + b"".join(layers)
                + linear(width) + layer("add"))

    residual, shortcut, add, relu = map(layer, (
        "residual", "shortcut", "add", "relu"))
    dropout = layer("dropout", 3)

    yield "perceptron", images(0, 3, 20, 1, 1, linear(17), relu, dropout)
    yield "convolutions", images(
        BF16 | SMOOTHING, 3, 3, 12, 11, conv2d(20, 5, 2, 2), relu,
        layer("local_response_norm"), pool("maxpool2d", 3, 2),
        conv2d(16, 3, 1, 2, 2, 4), layer("silu"), pool("avgpool2d", 2, 1, 1),
        dropout, linear(20), relu)
    yield "residuals", images(
        0, 2, 3, 5, 4, conv2d(16, 3, 1, 1, 0, 0, 1), layer("batch_norm2d"),
        relu, residual, conv2d(16, 3, 1, 1), layer("batch_norm2d"), add, relu,
        residual, conv2d(24, 3, 2, 1), layer("batch_norm2d"), shortcut,
        conv2d(24, 1, 2), add, relu, layer("global_avgpool2d"))
    yield "transformer", texts(
        BF16 | GAPS, 3, 13, layer("embedding", 12), layer("positions"),
        block(12, linear(36), layer("causal_attention", 3, 0)),
        block(12, linear(26), layer("gelu"), dropout),
        layer("layer_norm"), layer("unembedding"))
    yield "grouped-queries", texts(
        0, 2, 9, layer("embedding", 8),
        block(8, linear(32), layer("rotary", 4, 2), layer("attention", 4, 2)),
        block(8, linear(20), layer("swiglu")), layer("rms_norm"))
    # Of faults that were found.
    yield "residual-is-first", images(0, 2, 20, 1, 1, residual, relu, add)
    yield "dropout-of-part-of-a-block", images(
        0, 2, 9, 1, 2, conv2d(5, 3, 2, 1), relu, dropout, dropout,
        conv2d(36, 3, 1, 1))
    yield "images-of-one-pixel", images(
        0, 3, 2, 5, 5, pool("maxpool2d", 5), conv2d(6, 3, 1, 1),
        conv2d(5, 9, 1, 5), conv2d(7, 2, 1, 0, 2))
    yield "weights-that-meet-padding-alone", images(
        BF16, 2, 18, 1, 1, conv2d(24, 3, 1, 1), conv2d(24, 3, 2, 1))
    yield "embedding-is-not-first", texts(
        0, 1, 3, linear(1), layer("embedding", 8))


def main():
    for target in (frames, handshake, idx, config, environment, safetensors,
                   picture, tokens, net):
        folder = CORPUS / target.__name__
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in target():
            (folder / name).write_bytes(content)


if __name__ == "__main__":
    main()
