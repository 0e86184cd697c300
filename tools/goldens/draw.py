"""Draws the parameters of a tiny model from a seed: integers only, so that tests/tiny_model.cpp draws the same bits.

Element i of tensor NAME under seed S:
    key   = FNV-1a (64 bit) of the UTF-8 bytes of "S/NAME"
    z     = splitmix64's output for the state key + (i + 1) * 0x9E3779B97F4A7C15
    code  = (z's four 16-bit parts added up, less 131070) >> 8, rounding down:  -512 .. 511, near normal, deviation 148
    value = code * 2**exponent + offset
Every value is exact in FP32 and, for the exponents used here, in F16: storing a tiny model as F16 loses nothing.
"""

import numpy as np

DEVIATION = 147.8  # of a code
GAMMA = 0x9E3779B97F4A7C15


def key(seed: int, name: str) -> int:
    h = 0xCBF29CE484222325
    for byte in f"{seed}/{name}".encode():
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def bits(seed: int, name: str, count: int) -> np.ndarray:
    """The first `count` outputs of the stream, U64."""
    with np.errstate(over="ignore"):
        z = np.uint64(key(seed, name)) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(GAMMA)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def tensor(seed: int, name: str, shape: list[int], exponent: int, offset: int) -> np.ndarray:
    """The tensor, FP32, row-major."""
    z = bits(seed, name, int(np.prod(shape)))
    parts = sum((z >> np.uint64(s)) & np.uint64(0xFFFF) for s in (0, 16, 32, 48)).astype(np.int64)
    codes = (parts - 131070) >> 8
    return (codes.astype(np.float32) * np.float32(2.0**exponent) + np.float32(offset)).reshape(shape)


def ids(seed: int, count: int, vocabulary: int) -> np.ndarray:
    """`count` token ids below `vocabulary`, I64."""
    return (bits(seed, "ids", count) % np.uint64(vocabulary)).astype(np.int64)
