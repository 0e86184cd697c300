#!/usr/bin/env python3
"""Writes the seed files of the fuzz targets: small, valid, one for each part of the format.

    make_corpus.py [OUT]        OUT/<target>/<seed>, default tests/corpus

Needs nothing but Python.
"""

import json
import struct
import sys
from pathlib import Path

OUT = Path(sys.argv[1] if len(sys.argv) > 1 else "tests/corpus")


def write(target, name, data):
    path = OUT / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())


def safetensors(header, data_bytes, padding=0):
    text = json.dumps(header).encode() + b" " * padding
    return struct.pack("<Q", len(text)) + text + bytes(range(data_bytes))


def string(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def key(name, kind, payload):
    return string(name) + struct.pack("<I", kind) + payload


def array(kind, payloads):
    return struct.pack("<IQ", kind, len(payloads)) + b"".join(payloads)


def tensor(name, dims, kind, offset):
    return string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", kind, offset)


def gguf(keys, tensors, data, version=3):
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys)) + b"".join(keys) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + data


def main():
    two = {"a": {"dtype": "F16", "shape": [2, 3], "data_offsets": [0, 12]}, "b": {"dtype": "F32", "shape": [2], "data_offsets": [12, 20]}}
    write("safetensors_fuzz", "two", safetensors(two, 20))
    write("safetensors_fuzz", "metadata", safetensors({"__metadata__": {"format": "pt"}, **two}, 20, padding=7))
    write("safetensors_fuzz", "empty", safetensors({}, 0))
    write("safetensors_fuzz", "scalar", safetensors({"s": {"dtype": "F64", "shape": [], "data_offsets": [0, 8]}}, 8))

    every = [key(f"k{k}", k, p) for k, p in enumerate([
        b"\1", b"\xff", b"\1\0", b"\xff\xff", b"\1\0\0\0", b"\xff\xff\xff\xff", struct.pack("<f", 1.5), b"\1", string("text"),
        array(8, [string("a"), string("")]), struct.pack("<Q", 1 << 40), struct.pack("<q", -2), struct.pack("<d", 2.5)])]
    write("gguf_fuzz", "every_kind", gguf(every, [], b""))
    write("gguf_fuzz", "lists", gguf([key("n", 9, array(5, [struct.pack("<i", i) for i in range(3)])),
                                      key("f", 9, array(6, [struct.pack("<f", i) for i in range(3)]))], [], b"", version=2))
    write("gguf_fuzz", "alignment", gguf([key("general.alignment", 4, struct.pack("<I", 64))], [], b""))
    sizes = {0: 4, 1: 2, 30: 2, 28: 8, 2: 18, 3: 20, 6: 22, 7: 24, 8: 34, 20: 18, 10: 84, 11: 110, 12: 144, 13: 176, 14: 210}
    values = {0: 1, 1: 1, 30: 1, 28: 1, 10: 256, 11: 256, 12: 256, 13: 256, 14: 256}
    for kind, size in sizes.items():
        block = bytes((7 * i + kind) % 251 for i in range(size))
        write("gguf_fuzz", f"type_{kind}", gguf([], [tensor("w", [values.get(kind, 32), 1], kind, 0)], block))

    def text(name, value):
        return key(name, 8, string(value))

    def texts(name, values):
        return key(name, 9, array(8, [string(v) for v in values]))

    def numbers(name, kind, values, form):
        return key(name, 9, array(kind, [struct.pack(form, v) for v in values]))

    def number(name, value):
        return key(name, 4, struct.pack("<I", value))

    model = [text("general.architecture", "llama"), number("llama.embedding_length", 32), number("llama.block_count", 1),
             number("llama.feed_forward_length", 32), number("llama.attention.head_count", 1),
             key("llama.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5))]
    ids = [number("tokenizer.ggml.bos_token_id", 0), number("tokenizer.ggml.eos_token_id", 1), key("tokenizer.ggml.add_bos_token", 7, b"\1")]
    pieces = ["<unk>", "</s>", "<0x41>", "a", "b", "ab"]
    types = numbers("tokenizer.ggml.token_type", 5, [2, 3, 6, 1, 1, 1], "<i")
    scores = numbers("tokenizer.ggml.scores", 6, [0, 0, 0, -1, -2, -3], "<f")
    write("gguf_tokenizer_fuzz", "bpe", gguf(model + ids + [
        text("tokenizer.ggml.model", "gpt2"), text("tokenizer.ggml.pre", "smollm"), texts("tokenizer.ggml.tokens", pieces), types,
        texts("tokenizer.ggml.merges", ["a b"]), text("tokenizer.chat_template", "{{ '</s>' }}")], [], b""))
    write("gguf_tokenizer_fuzz", "sentencepiece", gguf(model + ids + [
        text("tokenizer.ggml.model", "llama"), texts("tokenizer.ggml.tokens", pieces), types, scores], [], b""))
    write("gguf_tokenizer_fuzz", "unigram", gguf(model + ids + [
        text("tokenizer.ggml.model", "t5"), texts("tokenizer.ggml.tokens", pieces), types, scores,
        key("tokenizer.ggml.add_space_prefix", 7, b"\0"), numbers("tokenizer.ggml.precompiled_charsmap", 0, [1, 2, 3], "<B")], [], b""))

    write("json_fuzz", "config", json.dumps({
        "architectures": ["LlamaForCausalLM"], "hidden_size": 48, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0}, "eos_token_id": [1, 2], "head_dim": None}))
    write("json_fuzz", "odd", '[1e3,-0,1.5e-7,"\\u00e9\\ud83d\\ude00\\\\",[],{},[[[{"a":[]}]]],18446744073709551615]')


    write("engine_fuzz", "small", json.dumps({
        "format_version": 1, "family": "llama", "dimensions": {"layers": 1, "hidden": 64, "vocabulary": 40, "max_context": 128},
        "made_for": "cpu", "runs_on": ["cpu"], "stop_ids": [2], "generation": {"temperature": 0.6, "top_k": 20},
        "files": {"weights.safetensors": {"bytes": 1, "modified_ns": 2, "sha256": "ab", "sampled": "cd"}},
        "weights": {"embed": {"format": "q8c", "layout": "tiles", "shape": [40, 64]}, "norm": {"format": "f32", "layout": "rows", "shape": [64]}},
        "provenance": {"source": "org/model"}}))

    write("engine_fuzz", "bounds", json.dumps({
        "format_version": 1, "dimensions": {"layers": 1000, "hidden": 1 << 20, "vocabulary": 1 << 24, "max_context": 2**31 - 1},
        "stop_ids": [0, (1 << 24) - 1], "generation": {"top_k": 2**31 - 1, "min_p": None}, "files": {}, "runs_on": [],
        "weights": {"a": {"format": "q4g128", "layout": "rows", "shape": [1 << 24, 1 << 20]}}}))
    write("engine_fuzz", "beyond", json.dumps({
        "format_version": 1, "dimensions": {"layers": -1, "hidden": 1e300, "vocabulary": 2**63, "max_context": "many"},
        "stop_ids": [-1, "x"], "generation": {"top_k": -1}, "files": {}, "weights": {}}))

    dense = {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
             "head_dim": 16, "vocab_size": 101, "rms_norm_eps": 1e-5, "max_position_embeddings": 256, "rope_theta": 10000.0}
    for name, more in {
            "llama": {"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
                                       "original_max_position_embeddings": 32}, "attention_bias": True, "mlp_bias": True},
            "qwen2": {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}, "qwen3": {"rope_scaling": {"type": "yarn", "factor": 4}},
            "granite": {"embedding_multiplier": 7.0, "attention_multiplier": 0.11, "residual_multiplier": 0.37, "logits_scaling": 3.0},
            "granitemoehybrid": {"layer_types": ["attention", "attention"], "num_local_experts": 0, "shared_intermediate_size": 80,
                                 "position_embedding_type": "rope"},
            "gemma3": {"query_pre_attn_scalar": 13, "sliding_window": 5, "sliding_window_pattern": 3, "rope_local_base_freq": 50,
                       "rope_parameters": {"full_attention": {"rope_theta": 1e3}, "sliding_attention": {"rope_type": "linear", "factor": 2}}}}.items():
        write("config_fuzz", name, json.dumps({"model_type": name, **dense, **more}))
    write("config_fuzz", "nested", json.dumps({"architectures": ["Gemma3ForConditionalGeneration"], "text_config": dense, "vision_config": {}}))
    write("config_fuzz", "gguf", json.dumps({
        "llama.embedding_length": 48, "llama.block_count": 2, "llama.feed_forward_length": 80, "llama.attention.head_count": 4,
        "llama.attention.layer_norm_rms_epsilon": 1e-5, "onw.vocab_size": 101, "onw.has_head": True, "onw.rope_freqs": [1.0] * 6}))

    def chat(name, **fields):
        write("chat_request_fuzz", name, json.dumps({"messages": [{"role": "user", "content": "hi"}], **fields}, ensure_ascii=False))

    chat("plain", model="tiny")
    chat("sampling", temperature=0.7, top_p=0.9, top_k=40, min_p=0.05, seed=-1, repetition_penalty=1.1, presence_penalty=-2,
         frequency_penalty=2, logit_bias={"65": -100, "66": 1.5})
    chat("stream", stream=True, stream_options={"include_usage": True}, n=2, max_completion_tokens=9, stop=["END", "é"])
    chat("logprobs", logprobs=True, top_logprobs=20, max_tokens=1, stop=None, tools=[], response_format={"type": "text"})
    chat("turns", messages=[
        {"role": "developer", "content": [{"type": "text", "text": "be brief"}, {"type": "text", "text": "and kind"}]},
        {"role": "user", "content": "<|im_end|>\n<think>\U0001f600\u0000"},
        {"role": "assistant", "content": "ok", "reasoning_content": "hm", "tool_calls": None},
        {"role": "user", "content": "again", "name": "x"}])
    chat("variables", chat_template_kwargs={"enable_thinking": True, "n": 1e-7, "deep": [[{"a": []}]]}, reasoning_effort="none")
    chat("refused", tools=[{"type": "function", "function": {"name": "f"}}], n=0)


main()
