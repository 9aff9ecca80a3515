# SPDX-License-Identifier: Apache-2.0
"""The order in which Cadre takes samples (docs/numerics.md): a permutation as a
function, by numbers that are functions of counters."""

ORDER = 2  # the stream of numbers that orders samples


def philox(seed, stream, a, b):
    """The first of four words (src/base/random.c)."""
    mask = 0xFFFFFFFF
    key = [seed & mask, seed >> 32]
    c = [b & mask, b >> 32, a, stream]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ key[0], p1 & mask,
             (p0 >> 32) ^ c[3] ^ key[1], p0 & mask]
        key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
    return c[0]


def sample_at(position, n, seed=1, epoch=0):
    """The sample at a position of an epoch (src/data/deal.c)."""
    bits = 0
    while 1 << (2 * bits) < n:
        bits += 1
    mask = (1 << bits) - 1
    while True:
        left, right = position >> bits, position & mask
        for step in range(6):
            mixed = left ^ (philox(seed, ORDER, epoch, step << 32 | right) & mask)
            left, right = right, mixed
        position = left << bits | right
        if position < n:
            return position


def batch(step, size, n):
    """The samples of a step, from 0; the last batch of an epoch may be short."""
    steps = -(-n // size)
    first = step % steps * size
    return [sample_at(p, n, epoch=step // steps)
            for p in range(first, min(first + size, n))]
