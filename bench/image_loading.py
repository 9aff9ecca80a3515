#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a core takes for a JPEG image: reading, decoding, a random part in
another size, normalising.

    bench/image_loading.py [--images 1000] [--side 224] [--rounds 5]

The images are Fashion-MNIST's, scaled up, in a folder that is removed at the
end.  Medians over the rounds, for one thread and for one on every core.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import tempfile

PROGRAMS = pathlib.Path(__file__).parents[1] / "build/release/tests/data"


def run(name, *arguments):
    return subprocess.run([PROGRAMS / name, *map(str, arguments)], check=True,
                          stdout=subprocess.PIPE, text=True).stdout


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    subprocess.run(["cmake", "--build", PROGRAMS.parents[1], "--target",
                    "make_image_folder", "read_image_folder"], check=True,
                   stdout=subprocess.DEVNULL)
    with tempfile.TemporaryDirectory() as folder:
        run("make_image_folder", folder, options.side, options.images, 100)
        print("threads  ms per image and thread")
        for threads in sorted({1, len(os.sched_getaffinity(0))}):
            times = [float(run("read_image_folder", folder, options.side,
                               threads)) for _ in range(options.rounds)]
            print(f"{threads:7}  {statistics.median(times):.2f} "
                  f"({min(times):.2f} to {max(times):.2f})")


if __name__ == "__main__":
    main()
