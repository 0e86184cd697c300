#!/usr/bin/env python3
"""Writes tests/data/gguf_blocks.txt: random blocks of every GGUF type that onw reads, and their values.

    make_gguf_vectors.py > tests/data/gguf_blocks.txt

Each line: type, the bytes of the blocks in hexadecimal, the FP32 values (little-endian bits, hexadecimal) that the
Python package gguf gives for them. Needs numpy and gguf. Seed 20; the scales are finite halves of ordinary size, everything
else is random bytes.
"""

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from importlib.metadata import version

# Where a block holds halves (scales, minima): these must be finite.
HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "IQ4_NL": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
}


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
        blocks = blocks_of(kind, {1: 8, 32: 3, 256: 2}[values], rng)
        out = dequantize(blocks, GGMLQuantizationType[kind]).astype("<f4").reshape(-1)
        print(kind, blocks.tobytes().hex(), out.tobytes().hex())


main()
