#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/images/: small JPEG and PNG files, and in references.txt what
they show and how parts of them are scaled, by Pillow (`pip install pillow`).

    picture FILE WIDTH HEIGHT CRC
    view FILE X Y WIDTH HEIGHT TO_WIDTH TO_HEIGHT CRC

CRC is zlib's, of the red, green and blue bytes.  A view is a part of a picture,
scaled.
"""

import pathlib
import struct
import zlib

from PIL import Image, ImageOps

FOLDER = pathlib.Path(__file__).parents[1] / "tests" / "data" / "images"


def mixed(*numbers):
    """A well mixed byte for some numbers."""
    return zlib.crc32(struct.pack(f"<{len(numbers)}I", *numbers)) & 0xFF


def noise(width, height):
    return Image.frombytes("RGB", (width, height), bytes(
        mixed(x, y, c) for y in range(height) for x in range(width)
        for c in range(3)))


def smooth(width, height):
    """Photographs are smooth, and JPEG is made for them."""
    return Image.frombytes("RGB", (width, height), bytes(
        value for y in range(height) for x in range(width)
        for value in (x * 255 // width, y * 255 // height,
                      (x * x + 3 * y) % 200)))


def chunk(kind, data):
    return (struct.pack(">I", len(data)) + kind + data
            + struct.pack(">I", zlib.crc32(kind + data)))


def png(width, height, depth, colour, rows, interlaced=0, extra=b""):
    return (b"\x89PNG\r\n\x1a\n"
            + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth,
                                         colour, 0, 0, interlaced))
            + extra + chunk(b"IDAT", zlib.compress(rows, 9))
            + chunk(b"IEND", b""))


def rows_of(width, height, pixel):
    return b"".join(b"\0" + b"".join(pixel(x, y) for x in range(width))
                    for y in range(height))


def adam7(width, height, pixel):
    passes = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4),
              (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
    return b"".join(
        b"\0" + b"".join(pixel(x, y) for x in range(x0, width, dx))
        for x0, y0, dx, dy in passes
        for y in range(y0, height, dy) if x0 < width)


def from_16(value):
    return (value * 255 + 32895) >> 16


def png_files():
    """(name, file, picture)"""
    w, h = 19, 13

    def picture(colours):
        return Image.frombytes("RGB", (w, h), bytes(
            value for y in range(h) for x in range(w)
            for value in colours(x, y)))

    def rgb(x, y):
        return tuple(mixed(x, y, c) for c in range(3))

    def deep(x, y, c):
        return mixed(x, y, c) << 8 | mixed(y, x * x + 3, c)

    def alpha(x, y):
        return bytes(rgb(x, y)) + bytes([mixed(x, y, 9)])

    palette = bytes(mixed(i, 77) for i in range(3 * 16))
    colours = chunk(b"PLTE", palette) + chunk(b"tRNS", bytes(range(0, 160, 10)))

    def entry(x, y):
        return 3 * (mixed(x, y) % 16)

    grey = lambda x, y: bytes([mixed(x, y)])
    yield "rgb.png", png(w, h, 8, 2, rows_of(
        w, h, lambda x, y: bytes(rgb(x, y)))), picture(rgb)
    yield "interlaced.png", png(w, h, 8, 2, adam7(
        w, h, lambda x, y: bytes(rgb(x, y))), 1), picture(rgb)
    yield "alpha.png", png(w, h, 8, 6, rows_of(w, h, alpha)), picture(rgb)
    yield "grey.png", png(w, h, 8, 0, rows_of(w, h, grey)), picture(
        lambda x, y: (mixed(x, y),) * 3)
    yield "palette.png", png(w, h, 8, 3, rows_of(
        w, h, lambda x, y: bytes([mixed(x, y) % 16])), 0, colours), picture(
        lambda x, y: palette[entry(x, y):entry(x, y) + 3])
    yield "deep.png", png(w, h, 16, 2, rows_of(w, h, lambda x, y: b"".join(
        struct.pack(">H", deep(x, y, c)) for c in range(3)))), picture(
        lambda x, y: tuple(from_16(deep(x, y, c)) for c in range(3)))
    yield "deep-grey-alpha.png", png(w, h, 16, 4, rows_of(
        w, h, lambda x, y: struct.pack(">HH", deep(x, y, 0), 99))), picture(
        lambda x, y: (from_16(deep(x, y, 0)),) * 3)

    def bits(y):
        row = bytearray((w + 7) // 8)
        for x in range(w):
            row[x // 8] |= (mixed(x, y) & 1) << (7 - x % 8)
        return b"\0" + row

    yield "bits.png", png(w, h, 1, 0, b"".join(map(bits, range(h)))), picture(
        lambda x, y: (255 * (mixed(x, y) & 1),) * 3)


def without_ink(image):
    """Red, green and blue of a CMYK picture."""
    data = image.tobytes()
    return Image.frombytes("RGB", image.size, bytes(
        ((255 - data[i + c]) * (255 - data[i + 3]) + 127) // 255
        for i in range(0, len(data), 4) for c in range(3)))


def jpeg_files():
    """(name, how Pillow saves it, picture)"""
    photo = smooth(45, 37)
    yield "photo.jpg", photo, dict(quality=90)
    yield "full-colour.jpg", photo, dict(quality=85, subsampling=0)
    yield "half-colour.jpg", photo, dict(quality=75, subsampling=1)
    yield "progressive.jpg", photo, dict(quality=80, progressive=True)
    yield "restarts.jpg", photo, dict(quality=80, restart_marker_blocks=2)
    yield "grey.jpg", photo.convert("L"), dict(quality=80)
    yield "ink.jpg", photo.convert("CMYK"), dict(quality=80)
    yield "noise.jpg", noise(64, 48), dict(quality=95)
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x010F] = "a camera"
        exif[0x0112] = orientation
        yield (f"turned-{orientation}.jpg", smooth(16, 8),
               dict(quality=80, exif=exif))


def shown(path):
    image = Image.open(path)
    if image.mode == "CMYK":
        return without_ink(image)
    return ImageOps.exif_transpose(image).convert("RGB")


# Larger, smaller, much smaller, both at once, and as it is.
VIEWS = (
    ("noise.jpg", (0, 0, 64, 48), (32, 24)),
    ("noise.jpg", (0, 0, 64, 48), (9, 7)),
    ("noise.jpg", (0, 0, 64, 48), (2, 1)),
    ("noise.jpg", (0, 0, 64, 48), (64, 48)),
    ("noise.jpg", (0, 0, 64, 48), (99, 71)),
    ("noise.jpg", (5, 3, 41, 44), (28, 28)),
    ("noise.jpg", (13, 20, 7, 25), (28, 28)),
    ("noise.jpg", (63, 47, 1, 1), (8, 8)),
    ("noise.jpg", (0, 10, 64, 2), (31, 17)),
    ("photo.jpg", (1, 2, 43, 34), (30, 30)),
    ("rgb.png", (0, 0, 19, 13), (12, 40)),
)


def references():
    for name, file, picture in png_files():
        (FOLDER / name).write_bytes(file)
        yield f"picture {name} {picture.width} {picture.height}", picture
    for name, picture, how in jpeg_files():
        picture.save(FOLDER / name, "JPEG", **how)
        seen = shown(FOLDER / name)
        yield f"picture {name} {seen.width} {seen.height}", seen
    for name, (x, y, width, height), size in VIEWS:
        part = shown(FOLDER / name).crop((x, y, x + width, y + height))
        yield (f"view {name} {x} {y} {width} {height} {size[0]} {size[1]}",
               part.resize(size, Image.Resampling.BILINEAR))


def main():
    FOLDER.mkdir(exist_ok=True)
    with open(FOLDER / "references.txt", "w", encoding="ascii") as out:
        for line, picture in references():
            out.write(f"{line} {zlib.crc32(picture.tobytes()):08x}\n")


if __name__ == "__main__":
    main()
