#!/usr/bin/env python3
"""The memory that an answer takes is what `onw inspect` says beforehand."""
import json
import os
import pathlib
import struct
import subprocess
import unittest

import harness
import tiny_hf

FOLDER = pathlib.Path(harness.FOLDER.name)
CONTEXT = 8192
HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD, VOCABULARY = 512, 2048, 24, 8, 8, 64, 260


def shapes():
    kv = KV_HEADS * HEAD
    yield "model.embed_tokens.weight", (VOCABULARY, HIDDEN)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        for name, shape in (("input_layernorm", (HIDDEN,)), ("self_attn.q_proj", (HIDDEN, HIDDEN)), ("self_attn.k_proj", (kv, HIDDEN)),
                            ("self_attn.v_proj", (kv, HIDDEN)), ("self_attn.o_proj", (HIDDEN, HIDDEN)),
                            ("post_attention_layernorm", (HIDDEN,)), ("mlp.gate_proj", (INNER, HIDDEN)),
                            ("mlp.up_proj", (INNER, HIDDEN)), ("mlp.down_proj", (HIDDEN, INNER))):
            yield at + name + ".weight", shape
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCABULARY, HIDDEN)


def write_published(folder):
    """A model whose caches are large beside the program itself. Its weights are holes in the file: all zero, and quick to make."""
    tiny_hf.write(folder, max_context=CONTEXT)
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
               "num_key_value_heads": KV_HEADS, "head_dim": HEAD}
    (folder / "config.json").write_text(json.dumps(config))
    header, at = {}, 0
    for name, shape in shapes():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "F16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)


def answer_peak_bytes(prompt):
    """What an answer had resident at most."""
    words = [harness.ONW, "chat", "wide", "--prompt", prompt, "--max-tokens", "4", "--context", str(CONTEXT), "--temperature", "0"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=harness.environment())
    complaint = process.stderr.read().decode()
    process.stderr.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise AssertionError(complaint)
    return usage.ru_maxrss * 1024


class Memory(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        write_published(FOLDER / "wide")
        done = harness.onw("convert", FOLDER / "wide", harness.HOME / "models" / "wide")
        if done.returncode != 0:
            raise RuntimeError(done.stderr)

    def test_an_answer_takes_what_inspect_says(self):
        told = json.loads(harness.onw("inspect", "wide", "--context", CONTEXT, "--json").stdout)["memory"]
        taken = answer_peak_bytes("x" * (CONTEXT - 100))  # a byte a token
        self.assertGreater(told["state_bytes"], 2 * told["program_bytes"], "the model is too small for its memory to count")
        self.assertAlmostEqual(taken / told["total_bytes"], 1, delta=0.05, msg=f"{taken} bytes taken, told {told}")


if __name__ == "__main__":
    harness.main()
