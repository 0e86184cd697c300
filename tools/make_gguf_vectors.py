#!/usr/bin/env python3
"""Writes tests/data/gguf_blocks.txt: random blocks of every GGUF type that onw reads, and their values.

    make_gguf_vectors.py > tests/data/gguf_blocks.txt

Each line: type, the bytes of the blocks in hexadecimal, the FP32 values (little-endian bits, hexadecimal) that the
Python package gguf gives for them; the types that it does not know (OWN) are computed here, digit by digit. Needs numpy
and gguf. Seed 20; the scales are finite halves of ordinary size, everything else is random bytes.
"""

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from importlib.metadata import version

# Where a block holds halves (scales, minima): these must be finite.
HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "IQ4_NL": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "TQ1_0": [52], "TQ2_0": [64],
}
# Values, bytes and the place of the scale of types that are not in the package.
OWN = {"Q1_0": (128, 18, 0), "Q2_0": (64, 18, 0), "PQ2_0": (128, 34, 0), "PTQ1_0": (128, 28, 26)}


def base_3(packed, digits):
    """The digits of bytes that are ceil(256 v / 243) for v with five base-3 digits, the first the most significant."""
    v = packed.astype(np.int64) * 243 // 256
    return [v // 3 ** (4 - i) % 3 for i in range(digits)]


def own_values(kind, blocks):
    values, _, at = OWN[kind]
    d = blocks[:, at : at + 2].copy().view("<f2").astype(np.float32)
    if kind == "Q1_0":
        bits = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little")
        return np.where(bits == 1, d, -d)
    if kind == "PTQ1_0":  # planes of 16, 8 and 2 bytes: first digit of all of them, second digit of all of them, ...
        planes = [(0, 16, 5), (16, 8, 5), (24, 2, 4)]
        codes = np.concatenate([d for b, n, k in planes for d in base_3(blocks[:, b : b + n], k)], axis=1)
    else:
        codes = np.stack([blocks[:, at + 2 :] >> s & 3 for s in (0, 2, 4, 6)], axis=2).reshape(-1, values)
    return (codes.astype(np.float32) - 1) * d


def own_blocks(kind, count, rng):
    values, size, at = OWN[kind]
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    if kind == "PTQ1_0":  # only bytes that stand for a number
        v = rng.integers(0, 243, (count, size))
        v[:, 24:26] -= v[:, 24:26] % 3
        blocks = ((v * 256 + 242) // 243).astype(np.uint8)
    blocks[:, at : at + 2] = rng.normal(0, 0.05, (count, 1)).astype("<f2").view(np.uint8)
    return blocks


def blocks_of(kind, count, rng):
    if kind == "F32":
        return rng.normal(size=count).astype("<f4").view(np.uint8).reshape(count, 4)
    if kind == "F16":
        return rng.normal(size=count).astype("<f2").view(np.uint8).reshape(count, 2)
    if kind == "BF16":
        return (rng.normal(size=count).astype("<f4").view(np.uint32) >> 16).astype("<u2").view(np.uint8).reshape(count, 2)
    _, size = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for at in HALVES[kind]:
        blocks[:, at : at + 2] = rng.normal(0, 0.05, (count, 1)).astype("<f2").view(np.uint8)
    return blocks


def main():
    rng = np.random.default_rng(20)
    print(f"# tools/make_gguf_vectors.py, seed 20, gguf {version('gguf')}")
    for kind in ["F32", "F16", "BF16", *HALVES]:
        values, _ = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
        blocks = blocks_of(kind, {1: 8, 32: 3, 128: 2, 256: 2}[values], rng)
        out = dequantize(blocks, GGMLQuantizationType[kind]).astype("<f4").reshape(-1)
        print(kind, blocks.tobytes().hex(), out.tobytes().hex())
    for kind in OWN:
        blocks = own_blocks(kind, 2, rng)
        print(kind, blocks.tobytes().hex(), own_values(kind, blocks).astype("<f4").tobytes().hex())


main()
