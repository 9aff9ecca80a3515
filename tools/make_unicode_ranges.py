#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the code points that are letters (category L) and numbers (N) as ranges,
by this Python's Unicode:

    tools/make_unicode_ranges.py > src/data/unicode_ranges.h
"""

import unicodedata


def ranges(category):
    found = []
    for point in range(0x110000):
        if unicodedata.category(chr(point))[0] != category:
            continue
        if found and found[-1][0] + found[-1][1] == point:
            found[-1][1] += 1
        else:
            found.append([point, 1])
    assert max(count for _, count in found) < 1 << 16
    return found


def show(name, kind, numbers):
    print(f"static const {kind} {name}[] = {{")
    line = "   "
    for number in numbers:
        word = f" {number},"
        if len(line) + len(word) > 80:
            print(line)
            line = "   "
        line += word
    print(f"{line}\n}};\n")


def main():
    print(f"""// SPDX-License-Identifier: Apache-2.0
//
// Letters and numbers of Unicode {unicodedata.unidata_version} as ranges, by
// tools/make_unicode_ranges.py: where each begins, and its code points.
//
// clang-format off

#ifndef CADRE_DATA_UNICODE_RANGES_H
#define CADRE_DATA_UNICODE_RANGES_H

#include <stdint.h>
""")
    for name, category in (("letter", "L"), ("number", "N")):
        found = ranges(category)
        show(f"{name}_begins", "uint32_t", (begin for begin, _ in found))
        show(f"{name}_counts", "uint16_t", (count for _, count in found))
    print("#endif // CADRE_DATA_UNICODE_RANGES_H")


if __name__ == "__main__":
    main()
