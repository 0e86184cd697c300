#!/usr/bin/env python3
"""Converts a large sparse model under a memory limit and reports what it took.

    tests/e2e/convert_memory.py [--gigabytes 8 | --model FOLDER] [--onw build/release/onw] [--format q4g128]

The model is a Llama in F32 whose weights file has holes instead of data, so it takes no disk; or a Hugging Face folder, such as
tools/mkmodel.py makes. The limit is 1.5 times its largest tensor plus 200 MB: a memory cgroup (v1 or v2) enforces it, page cache
included, where one can be made; else the peak of anonymous memory is read from /proc twenty times a second and compared.
--limit-mb sets another limit, to see what fails then.
"""
import argparse
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import time

HIDDEN, INNER, VOCABULARY, HEADS, KV_HEADS, HEAD = 2048, 8192, 32000, 32, 8, 64
MB = 1 << 20


def shapes(layers):
    q, kv = HEADS * HEAD, KV_HEADS * HEAD
    yield "model.embed_tokens.weight", (VOCABULARY, HIDDEN)
    for layer in range(layers):
        at = f"model.layers.{layer}."
        yield at + "input_layernorm.weight", (HIDDEN,)
        yield at + "self_attn.q_proj.weight", (q, HIDDEN)
        yield at + "self_attn.k_proj.weight", (kv, HIDDEN)
        yield at + "self_attn.v_proj.weight", (kv, HIDDEN)
        yield at + "self_attn.o_proj.weight", (HIDDEN, q)
        yield at + "post_attention_layernorm.weight", (HIDDEN,)
        yield at + "mlp.gate_proj.weight", (INNER, HIDDEN)
        yield at + "mlp.up_proj.weight", (INNER, HIDDEN)
        yield at + "mlp.down_proj.weight", (HIDDEN, INNER)
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCABULARY, HIDDEN)


def count(shape):
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


def write_model(folder, gigabytes):
    """Returns the bytes of the weights file and of its largest tensor."""
    per_layer = sum(4 * count(s) for _, s in shapes(1)) - 2 * 4 * VOCABULARY * HIDDEN
    layers = max(1, round((gigabytes * (1 << 30) - 2 * 4 * VOCABULARY * HIDDEN) / per_layer))
    config = {"architectures": ["LlamaForCausalLM"], "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": layers,
              "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD, "vocab_size": VOCABULARY,
              "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False, "eos_token_id": 2}
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    header, end = {}, 0
    for name, shape in shapes(layers):
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [end, end + 4 * count(shape)]}
        end += 4 * count(shape)
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
    return end, max(4 * count(s) for _, s in shapes(1))


class Cgroup:
    """A memory cgroup of our own; `path` is None where none can be made."""

    def __init__(self, limit):
        self.path = None
        name = f"onw-test-{os.getpid()}"
        for root, file in ((pathlib.Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"), (pathlib.Path("/sys/fs/cgroup"), "memory.max")):
            path = root / name
            try:
                path.mkdir()
                (path / file).write_text(str(limit))
                self.path = path
                return
            except OSError:
                if path.is_dir():
                    path.rmdir()

    def enter(self):
        if self.path:
            (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        for _ in range(50):
            try:
                return self.path and self.path.rmdir()
            except OSError:
                time.sleep(0.1)


def anonymous_bytes(pid):
    try:
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().split("\n"):
            if line.startswith("RssAnon:"):
                return 1024 * int(line.split()[1])
    except OSError:
        pass
    return 0


def tensor_bytes(folder):
    """Of a Hugging Face folder: of all tensors, and of the largest."""
    sizes = []
    for shard in folder.glob("*.safetensors"):
        with open(shard, "rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        sizes += [t["data_offsets"][1] - t["data_offsets"][0] for name, t in header.items() if name != "__metadata__"]
    return sum(sizes), max(sizes)


def measure(onw, form, gigabytes=2, model=None, limit=None):
    """A dict: bytes, largest, limit, peak (anonymous bytes), enforced, code, stderr, seconds."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="onw-memory-"))
    cgroup = None
    try:
        size, largest = tensor_bytes(model) if model else write_model(folder / "model", gigabytes)
        limit = limit or largest * 3 // 2 + 200 * MB
        cgroup = Cgroup(limit)
        started, peak = time.time(), 0
        with open(folder / "stderr", "w+", encoding="utf-8") as stderr:
            run = subprocess.Popen([onw, "convert", model or folder / "model", folder / "out", "--format", form], stdout=subprocess.DEVNULL, stderr=stderr,
                                   preexec_fn=cgroup.enter)
            while run.poll() is None:
                peak = max(peak, anonymous_bytes(run.pid))
                time.sleep(0.05)
            stderr.seek(0)
            said = stderr.read()[-2000:]
        return {"bytes": size, "largest": largest, "limit": limit, "peak": peak, "enforced": cgroup.path is not None, "code": run.returncode,
                "finished": (folder / "out" / "engine.json").exists(), "seconds": time.time() - started, "stderr": said}
    finally:
        if cgroup:
            cgroup.remove()
        shutil.rmtree(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=8)
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--limit-mb", type=int)
    parser.add_argument("--format", default="q4g128")
    parser.add_argument("--onw", default=str(pathlib.Path(__file__).resolve().parents[2] / "build/release/onw"))
    options = parser.parse_args()
    m = measure(options.onw, options.format, options.gigabytes, options.model, options.limit_mb and options.limit_mb * MB)
    print(f"{m['bytes'] / 1e9:.1f} GB in {m['seconds']:.0f} s; largest tensor {m['largest'] / MB:.0f} MB, limit {m['limit'] / MB:.0f} MB "
          f"({'enforced by a cgroup' if m['enforced'] else 'not enforced'}), peak of anonymous memory {m['peak'] / MB:.0f} MB")
    if m["code"] != 0 or not m["finished"] or m["peak"] > m["limit"]:
        sys.exit(f"FAILED: exit code {m['code']}\n{m['stderr']}")


if __name__ == "__main__":
    main()
