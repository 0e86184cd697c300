#!/usr/bin/env python3
"""gpt-oss with MXFP4 experts in a GGUF file, as the package gguf encodes and writes it.

The same numbers as a Hugging Face folder in BF16 (which holds every MXFP4 value) give the same logits, and the file's codes are
taken over: the CPU computes from them what the quantised reference computes, to the bit.
"""
import importlib.util
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import gguf
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
ONW = os.environ.get("ONW") or str(ROOT / "build" / "release" / "onw")
IDS = [1, 40, 77, 300, 256, 12, 90, 91, 92, 5, 5, 5, 200, 133, 17, 511]
SPEC = importlib.util.spec_from_file_location("mkmodel", ROOT / "tools" / "mkmodel.py")
mkmodel = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(mkmodel)

LAYERS, HIDDEN, WIDTH, EXPERTS, USED, HEADS, KEY_HEADS, HEAD, VOCABULARY, WINDOW = 2, 64, 96, 4, 2, 4, 2, 24, 512, 6
YARN = {"rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False, "original_max_position_embeddings": 16}


def draw(rng, *shape, spread=1.0, around=0.0):
    """Numbers that BF16 holds."""
    x = rng.normal(around, spread / np.sqrt(shape[-1]) if len(shape) > 1 else 0.2, shape)
    return mkmodel.from_bf16(mkmodel.to_bf16(np.asarray(x, np.float32)))


def tensors(rng):
    """(GGUF name, Hugging Face name, values) of all but the experts' matrices."""
    yield "token_embd.weight", "model.embed_tokens.weight", draw(rng, VOCABULARY, HIDDEN, spread=8)
    yield "output_norm.weight", "model.norm.weight", draw(rng, HIDDEN, around=1)
    yield "output.weight", "lm_head.weight", draw(rng, VOCABULARY, HIDDEN)
    for n in range(LAYERS):
        g, h = f"blk.{n}.", f"model.layers.{n}."
        yield g + "attn_norm.weight", h + "input_layernorm.weight", draw(rng, HIDDEN, around=1)
        yield g + "post_attention_norm.weight", h + "post_attention_layernorm.weight", draw(rng, HIDDEN, around=1)
        for ours, theirs, rows, columns in (("attn_q", "q_proj", HEADS * HEAD, HIDDEN), ("attn_k", "k_proj", KEY_HEADS * HEAD, HIDDEN),
                                            ("attn_v", "v_proj", KEY_HEADS * HEAD, HIDDEN), ("attn_output", "o_proj", HIDDEN, HEADS * HEAD)):
            yield g + ours + ".weight", h + f"self_attn.{theirs}.weight", draw(rng, rows, columns)
            yield g + ours + ".bias", h + f"self_attn.{theirs}.bias", draw(rng, rows)
        yield g + "attn_sinks.weight", h + "self_attn.sinks", draw(rng, HEADS)
        yield g + "ffn_gate_inp.weight", h + "mlp.router.weight", draw(rng, EXPERTS, HIDDEN)
        yield g + "ffn_gate_inp.bias", h + "mlp.router.bias", draw(rng, EXPERTS)


def expert_tensors(rng):
    """(layer, part, blocks as the package gguf encodes them, their values, biases)."""
    for n in range(LAYERS):
        for part, rows, columns in (("gate", WIDTH, HIDDEN), ("up", WIDTH, HIDDEN), ("down", HIDDEN, WIDTH)):
            blocks = gguf.quants.quantize(draw(rng, EXPERTS, rows, columns, spread=3), gguf.GGMLQuantizationType.MXFP4)
            yield n, part, blocks, gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType.MXFP4), draw(rng, EXPERTS, rows)


def write_gguf(path, plain, experts):
    w = gguf.GGUFWriter(path, "gpt-oss")
    w.add_block_count(LAYERS)
    w.add_context_length(512)
    w.add_embedding_length(HIDDEN)
    w.add_feed_forward_length(WIDTH)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KEY_HEADS)
    w.add_key_length(HEAD)
    w.add_value_length(HEAD)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_freq_base(10000.0)
    w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    w.add_rope_scaling_factor(YARN["factor"])
    w.add_rope_scaling_orig_ctx_len(YARN["original_max_position_embeddings"])
    w.add_sliding_window(WINDOW)
    w.add_expert_count(EXPERTS)
    w.add_expert_used_count(USED)
    w.add_expert_feed_forward_length(WIDTH)
    words, merges, specials = mkmodel.tokenizer()
    unused = [f"<|unused_{i}|>" for i in range(VOCABULARY - len(words) - len(specials))]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-4o")
    w.add_token_list(words + specials + unused)
    w.add_token_types([gguf.TokenType.NORMAL] * len(words) + [gguf.TokenType.CONTROL] * len(specials) + [gguf.TokenType.UNUSED] * len(unused))
    w.add_token_merges([" ".join(m) for m in merges])
    w.add_eos_token_id(len(words) + 1)
    w.add_chat_template(mkmodel.CHAT_TEMPLATE)
    for name, _, values in plain:
        w.add_tensor(name, values)
    for n, part, blocks, _, biases in experts:
        w.add_tensor(f"blk.{n}.ffn_{part}_exps.weight", blocks, raw_dtype=gguf.GGMLQuantizationType.MXFP4)
        w.add_tensor(f"blk.{n}.ffn_{part}_exps.bias", biases)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def in_turns(gate, up):
    """Gates and ups along the last axis, one after the other."""
    return np.stack([gate, up], -1).reshape(*gate.shape[:-1], -1)


def write_hf(folder, plain, experts):
    folder.mkdir()
    entries = [(name, values) for _, name, values in plain]
    parts = {(n, part): (values, biases) for n, part, _, values, biases in experts}
    for n in range(LAYERS):
        (gate, gate_bias), (up, up_bias), (down, down_bias) = (parts[n, part] for part in ("gate", "up", "down"))
        h = f"model.layers.{n}.mlp.experts."
        entries.append((h + "gate_up_proj", in_turns(gate.swapaxes(1, 2), up.swapaxes(1, 2))))
        entries.append((h + "gate_up_proj_bias", in_turns(gate_bias, up_bias)))
        entries.append((h + "down_proj", down.swapaxes(1, 2)))
        entries.append((h + "down_proj_bias", down_bias))
    header, data = {}, b""
    for name, values in entries:
        piece = mkmodel.to_bf16(np.ascontiguousarray(values, np.float32)).tobytes()
        header[name] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    words, merges, specials = mkmodel.tokenizer()
    (folder / "tokenizer.json").write_text(json.dumps(mkmodel.tokenizer_json(words, merges, specials), ensure_ascii=False))
    (folder / "config.json").write_text(json.dumps(dict(
        architectures=["GptOssForCausalLM"], model_type="gpt_oss", hidden_size=HIDDEN, intermediate_size=WIDTH, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KEY_HEADS, head_dim=HEAD, num_local_experts=EXPERTS, num_experts_per_tok=USED,
        vocab_size=VOCABULARY, rms_norm_eps=1e-5, rope_theta=10000.0, rope_scaling=YARN, sliding_window=WINDOW,
        max_position_embeddings=512, attention_bias=True, tie_word_embeddings=False, eos_token_id=len(words) + 1)))


def run(*words):
    done = subprocess.run([ONW, *map(str, words)], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


class GptOssTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="onw-gpt-oss-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        (self.folder / "ids").write_text(" ".join(map(str, IDS)))
        rng = np.random.default_rng(7)
        plain, experts = list(tensors(rng)), list(expert_tensors(rng))
        write_gguf(self.folder / "m.gguf", plain, experts)
        write_hf(self.folder / "hf", plain, experts)

    def logits(self, model, *how):
        saved = self.folder / "logits.safetensors"
        run("eval", self.folder / model, "--ids", self.folder / "ids", "--save-logits", saved, *how)
        data = saved.read_bytes()
        start = 8 + int.from_bytes(data[:8], "little")
        entry = json.loads(data[8:start])["logits"]
        begin, end = entry["data_offsets"]
        return np.frombuffer(data[start + begin:start + end], np.float32).reshape(entry["shape"])

    def test_the_file_gives_the_logits_of_the_folder_with_the_same_numbers(self):
        for source, model in (("m.gguf", "file"), ("hf", "folder")):
            run("convert", self.folder / source, self.folder / model, "--format", "f32")
        plain = ("--device", "reference", "--quantised", "no")
        file, folder = self.logits("file", *plain), self.logits("folder", *plain)
        largest = np.abs(folder).max()
        self.assertGreater(largest, 0.1)
        self.assertLess(np.abs(file - folder).max(), 1e-5 * largest)

    def test_its_codes_are_taken_over_and_the_cpu_computes_from_them_what_the_reference_does(self):
        report = run("convert", self.folder / "m.gguf", self.folder / "taken")
        lines = [line for line in report.splitlines() if ".experts." in line and ".bias" not in line]
        self.assertEqual(len(lines), 3 * LAYERS, report)
        for line in lines:
            self.assertIn("MXFP4 -> mxfp4", line)
            self.assertIn("exact", line)
        cpu, reference = (self.logits("taken", "--device", device) for device in ("CPU", "reference"))
        self.assertEqual(cpu.tobytes(), reference.tobytes())
        run("convert", self.folder / "m.gguf", self.folder / "plain", "--format", "f32")
        values = self.logits("plain", "--device", "reference", "--quantised", "no")
        self.assertLess(np.abs(reference - values).max(), 0.1 * np.abs(values).max())


if __name__ == "__main__":
    unittest.main(verbosity=2)
