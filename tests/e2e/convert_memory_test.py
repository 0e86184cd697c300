#!/usr/bin/env python3
"""Converting a model keeps little more than one tensor in memory: measured, and enforced, by a memory cgroup."""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import harness  # noqa: E402
import tiny_hf  # noqa: E402

HIDDEN, INNER, LAYERS, VOCABULARY = 2048, 8192, 12, 32000
SPARE = 200 << 20
V1, V2 = pathlib.Path("/sys/fs/cgroup/memory"), pathlib.Path("/sys/fs/cgroup")


def sparse_model(folder):
    """A llama of 2.2 GB in F32 zeros, which take no room on the disk. Returns the bytes of its largest tensor."""
    folder.mkdir(parents=True)
    config = {**json.loads(tiny_hf.files()["config.json"]), "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS, "vocab_size": VOCABULARY,
              "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64}
    shapes = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), "model.norm.weight": (HIDDEN,), "lm_head.weight": (VOCABULARY, HIDDEN)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        shapes |= {at + "input_layernorm.weight": (HIDDEN,), at + "post_attention_layernorm.weight": (HIDDEN,),
                   at + "self_attn.q_proj.weight": (2048, HIDDEN), at + "self_attn.k_proj.weight": (512, HIDDEN),
                   at + "self_attn.v_proj.weight": (512, HIDDEN), at + "self_attn.o_proj.weight": (HIDDEN, 2048),
                   at + "mlp.gate_proj.weight": (INNER, HIDDEN), at + "mlp.up_proj.weight": (INNER, HIDDEN),
                   at + "mlp.down_proj.weight": (HIDDEN, INNER)}
    header, end, largest = {}, 0, 0
    for name, shape in shapes.items():
        size = 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [end, end + size]}
        end, largest = end + size, max(largest, size)
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        out.truncate(8 + len(text) + end)
    for name, content in {**tiny_hf.files(), "config.json": json.dumps(config).encode()}.items():
        if name != "model.safetensors":
            (folder / name).write_bytes(content)
    return largest


class MemoryGroup:
    """A memory cgroup, version 1 or 2, of its own. None of them: skips."""

    def __init__(self, limit):
        self.v1 = (V1 / "memory.limit_in_bytes").exists()
        self.path = (V1 if self.v1 else V2) / f"onw-test-{os.getpid()}"
        try:
            self.path.mkdir()
            (self.path / ("memory.limit_in_bytes" if self.v1 else "memory.max")).write_text(str(limit))
        except OSError as no:
            raise unittest.SkipTest(f"no memory cgroup can be made here ({no.strerror})")

    def enter(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        self.path.rmdir()


class ConvertMemory(unittest.TestCase):
    def test_a_large_model_is_converted_within_one_and_a_half_tensors_and_200_mb(self):  # formats-136
        folder = pathlib.Path(harness.FOLDER.name) / "large"
        largest = sparse_model(folder)
        limit = largest * 3 // 2 + SPARE
        group = MemoryGroup(limit)
        self.addCleanup(group.remove)
        self.addCleanup(shutil.rmtree, folder, True)
        done = subprocess.run([harness.ONW, "convert", str(folder), str(folder / "out"), "--format", "q4g128"], capture_output=True, text=True,
                              env=harness.environment(), preexec_fn=group.enter, timeout=400)
        self.assertEqual(done.returncode, 0, f"with a limit of {limit} bytes: {done.stderr[-2000:]}")


if __name__ == "__main__":
    harness.main()
