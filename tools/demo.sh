#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What `make demo` shows: two ranks train a convolutional network on real data,
# and any number of ranks ends in the same bits.
#
#     tools/demo.sh [CADRE]
#
# Leaves the run in runs/demo, in place of the one before.
set -eu
LC_ALL=C # elsewhere numbers may have a comma
export LC_ALL
cd "$(dirname "$0")/.."
cadre=${1:-build/release/bin/cadre}
run=runs/demo

# The value of a field of a run's summary.json.
field() {
    sed -n "s/^ *\"$2\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p" \
        "$1/summary.json"
}

echo "Two ranks train cnn-fashion on Fashion-MNIST:"
rm -rf "$run"
"$cadre" train cnn-fashion -n 2 --threads 1 --trace 100:3 --out "$run"

echo
echo "The first 20 steps, with one rank and with two:"
short=$(mktemp -d)
trap 'rm -rf "$short"' EXIT
for n in 1 2; do
    "$cadre" train cnn-fashion -n $n --threads 1 --steps 20 --quiet \
        --set parallel.leaves=2 --out "$short/$n" >/dev/null
    echo "  -n $n: params_hash $(field "$short/$n" params_hash)"
done
if [ "$(field "$short/1" params_hash)" != "$(field "$short/2" params_hash)" ]
then
    echo "demo: the hashes differ: the ranks did not compute the same" >&2
    exit 1
fi
echo "  They are equal: the same bits, however many ranks."

accuracy=$(field "$run" accuracy)
echo
printf 'Test accuracy %.4f after %.0f seconds; params_hash %s\n' "$accuracy" \
    "$(field "$run" wall_seconds)" "$(field "$run" params_hash)"
echo "Look at $run/report.html in a browser, at $run/trace.json in"
echo "ui.perfetto.dev, at $run/summary.json; and try"
echo "  $cadre eval $run"
if ! awk "BEGIN { exit !($accuracy >= 0.90) }"; then
    echo "demo: the accuracy is below 0.90" >&2
    exit 1
fi
