#!/usr/bin/env python3
"""Writes tests/data/affine_rows.txt: matrices as MLX quantises them, and their values.

    make_affine_vectors.py > tests/data/affine_rows.txt

Each line: bits, group, the type of scales and biases, rows, inputs, then in hexadecimal the packed codes (32-bit words),
the scales, the biases, and the FP32 values scale * code + bias. Needs numpy. Seed 31. Biases are what real files have: -d
for ternary codes with scale d, and anything.
"""

import numpy as np

SHAPES = [(1, 128, "F16"), (2, 128, "F16"), (2, 64, "F16"), (2, 128, "BF16"), (4, 64, "BF16"), (4, 32, "F16"), (8, 64, "F32")]
ROWS, INPUTS = 2, 256


def rounded(x, kind):
    """x as FP32 of that type's precision, and its bytes."""
    if kind == "F16":
        half = x.astype("<f2")
        return half.astype(np.float32), half.tobytes()
    if kind == "BF16":
        top = (x.astype("<f4").view(np.uint32) >> 16).astype("<u2")
        return (top.astype(np.uint32) << 16).view(np.float32), top.tobytes()
    return x.astype(np.float32), x.astype("<f4").tobytes()


def main():
    rng = np.random.default_rng(31)
    print("# tools/make_affine_vectors.py, seed 31")
    for bits, group, kind in SHAPES:
        codes = rng.integers(0, 2**bits, (ROWS, INPUTS)).astype(np.uint32)
        per_word = 32 // bits
        shifts = (np.arange(per_word, dtype=np.uint32) * bits)[None, None]
        words = np.bitwise_or.reduce(codes.reshape(ROWS, -1, per_word) << shifts, axis=2).astype("<u4")
        scale, scale_bytes = rounded(rng.uniform(0.01, 0.1, (ROWS, INPUTS // group)), kind)
        drawn = -scale if (bits, kind) == (2, "F16") else rng.normal(0, 0.1, scale.shape)
        bias, bias_bytes = rounded(drawn, kind)
        values = codes.astype(np.float32) * np.repeat(scale, group, 1) + np.repeat(bias, group, 1)
        print(bits, group, kind, ROWS, INPUTS, words.tobytes().hex(), scale_bytes.hex(), bias_bytes.hex(),
              values.astype("<f4").tobytes().hex())


main()
