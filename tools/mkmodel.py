#!/usr/bin/env python3
"""Models with random weights and realistic shapes, to measure speed and memory on where no published model can be had.

    mkmodel.py SHAPE OUT.gguf [--type q4_0|q8_0|f16] [--layers N] [--mtp] [--seed S]
    mkmodel.py SHAPE OUT --hf                        [--layers N] [--mtp] [--seed S]

The GGUF file and the Hugging Face folder of one shape and seed hold the same values (BF16, then quantised for the GGUF), so
their logits can be compared (tests/parity/mkmodel_test.py). What such a model writes is noise, as is its prompt's meaning:
quality cannot be measured with it.

    shape      like                                         GGUF q4_0    --hf
    tiny       Llama, 2 layers of 256, for tests              1 MB        3 MB
    tinymoe    Qwen3 with 8 experts, 2 layers of 256        2 MB        6 MB
    tinyqwen35moe  Qwen3.5 with 8 experts, 4 layers of 256  4 MB       14 MB
    1b         Llama-3.2-1B                                 0.8 GB      2.5 GB
    8b         Llama-3-8B                                   4.7 GB     16.1 GB
    moe        Qwen3-30B-A3B, 24 of its 48 layers           8.9 GB     31   GB
    qwen35     Qwen3.5 dense, 24 layers of 2048             1.2 GB      3.8 GB
    qwen35moe  Qwen3.5-35B-A3B, 16 of its 40 layers         8.3 GB     29   GB

Needs numpy and gguf (0.19). Memory: 0.3 GB and one projection matrix.

Values. One pool of 16 Mi numbers N(0, 0.02) is drawn from the seed and encoded once; a matrix is a chain of slices of the
pool whose offsets are drawn from (seed, tensor name). Offsets are multiples of 256, the largest quantisation block, so
slicing and quantising commute, and a model is written as fast as the disk takes it. Routers spread tokens evenly over the
experts; those of published models do not.

Encoding. A q4_0 file is mixed as such files usually are: matrices q4_0, the head (the embedding where tied) q6_k; norms,
routers and convolutions f32. q8_0 and f16 files have one type for all matrices.

Names. Hugging Face: the classes of transformers for llama, qwen3_moe, qwen3_5 and qwen3_5_moe. GGUF: the tensor names of the
package gguf, as llama.cpp loads them. A GGUF differs in four ways, all in gguf_form(): rows of Llama's q and k stand in
pairs (2i, 2i+1) for RoPE where Hugging Face has (i, i + d/2); norms of qwen35 are stored as 1 + w; A_log as -exp(A_log); its
value heads are tiled (head i belongs to key head i % nk) where Hugging Face groups them (i // r).
"""

import argparse
import json
import math
import sys
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

try:
    import gguf
    import numpy as np
except ImportError:  # --help works without
    gguf = np = None

# Keys are those of a Hugging Face config.json.
LLAMA = dict(model_type="llama", rms_norm_eps=1e-5, rope_theta=500000.0, vocab_size=128256, max_position_embeddings=131072)
GATED_DELTA = dict(
    rms_norm_eps=1e-6, rope_theta=1e7, vocab_size=248320, max_position_embeddings=262144, head_dim=256,
    partial_rotary_factor=0.25, full_attention_interval=4, linear_num_key_heads=16, linear_key_head_dim=128,
    linear_value_head_dim=128, linear_conv_kernel_dim=4)
SHAPES = {
    "tiny": LLAMA | dict(hidden_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=64,
                         intermediate_size=512, vocab_size=512, max_position_embeddings=2048, tie_word_embeddings=False),
    "1b": LLAMA | dict(hidden_size=2048, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
                       head_dim=64, intermediate_size=8192, tie_word_embeddings=True),
    "8b": LLAMA | dict(hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
                       head_dim=128, intermediate_size=14336, tie_word_embeddings=False),
    "moe": dict(model_type="qwen3_moe", rms_norm_eps=1e-6, rope_theta=1e6, vocab_size=151936, max_position_embeddings=40960,
                hidden_size=2048, num_hidden_layers=24, num_attention_heads=32, num_key_value_heads=4, head_dim=128,
                num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768, tie_word_embeddings=False),
    "tinymoe": dict(model_type="qwen3_moe", rms_norm_eps=1e-6, rope_theta=1e6, vocab_size=512, max_position_embeddings=2048,
                    hidden_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=64,
                    num_experts=8, num_experts_per_tok=2, moe_intermediate_size=256, tie_word_embeddings=False),
    "tinyqwen35moe": GATED_DELTA | dict(
        model_type="qwen3_5_moe", hidden_size=256, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=64,
        linear_num_key_heads=4, linear_num_value_heads=8, linear_key_head_dim=32, linear_value_head_dim=64, num_experts=8,
        num_experts_per_tok=2, moe_intermediate_size=256, shared_expert_intermediate_size=256, vocab_size=512,
        max_position_embeddings=2048, tie_word_embeddings=False),
    "qwen35": GATED_DELTA | dict(model_type="qwen3_5", hidden_size=2048, num_hidden_layers=24, num_attention_heads=8,
                                 num_key_value_heads=2, linear_num_value_heads=16, intermediate_size=6144,
                                 tie_word_embeddings=True),
    "qwen35moe": GATED_DELTA | dict(model_type="qwen3_5_moe", hidden_size=2048, num_hidden_layers=16, num_attention_heads=16,
                                    num_key_value_heads=2, linear_num_value_heads=32, num_experts=256, num_experts_per_tok=8,
                                    moe_intermediate_size=512, shared_expert_intermediate_size=512,
                                    tie_word_embeddings=False),
}
GGUF_ARCH = {"llama": "llama", "qwen3_moe": "qwen3moe", "qwen3_5": "qwen35", "qwen3_5_moe": "qwen35moe"}
HF_CLASS = {"llama": "LlamaForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM", "qwen3_5": "Qwen3_5ForCausalLM",
            "qwen3_5_moe": "Qwen3_5MoeForCausalLM"}

BLOCK = 256            # offsets into the pool; a multiple of every quantisation block
PIECE = 1 << 20        # values taken from the pool at once
POOL = 1 << 24


# ---------------------------------------------------------------------------------------------- the list of tensors

@dataclass(frozen=True)
class Tensor:
    """One GGUF tensor. shape is [out, in] or [experts, out, in], as numpy orders it; hf holds '{e}' where HF splits experts."""
    gguf: str
    hf: str
    shape: tuple
    kind: str = "matrix"  # matrix, head, router, conv, norm, zero_norm, dt_bias or a_log


def tensors(c):
    hidden, vocab = c["hidden_size"], c["vocab_size"]
    gated = c["model_type"].startswith("qwen3_5")
    norm = "zero_norm" if gated else "norm"
    yield Tensor("token_embd.weight", "model.embed_tokens.weight", (vocab, hidden), "head" if c["tie_word_embeddings"] else "matrix")
    yield Tensor("output_norm.weight", "model.norm.weight", (hidden,), norm)
    if not c["tie_word_embeddings"]:
        yield Tensor("output.weight", "lm_head.weight", (vocab, hidden), "head")
    for layer in range(c["num_hidden_layers"]):
        linear = gated and (layer + 1) % c["full_attention_interval"] != 0
        yield from block(c, f"blk.{layer}.", f"model.layers.{layer}.", linear)
    if c.get("mtp_num_hidden_layers"):
        yield from mtp(c, c["num_hidden_layers"])


def block(c, g, h, linear=False):
    hidden, gated = c["hidden_size"], c["model_type"].startswith("qwen3_5")
    norm = "zero_norm" if gated else "norm"
    yield Tensor(g + "attn_norm.weight", h + "input_layernorm.weight", (hidden,), norm)
    yield from (gated_delta(c, g, h + "linear_attn.") if linear else attention(c, g, h + "self_attn.", gated, norm))
    ffn_norm = "post_attention_norm.weight" if gated else "ffn_norm.weight"
    yield Tensor(g + ffn_norm, h + "post_attention_layernorm.weight", (hidden,), norm)
    yield from (experts(c, g, h + "mlp.") if "num_experts" in c else mlp(g, h + "mlp.", hidden, c["intermediate_size"]))


def mtp(c, layer):
    """The layer that predicts one token further: one of full attention behind the last, with a product before it."""
    hidden, g = c["hidden_size"], f"blk.{layer}.nextn."
    yield from block(c, f"blk.{layer}.", "mtp.layers.0.")
    yield Tensor(g + "eh_proj.weight", "mtp.fc.weight", (hidden, 2 * hidden))
    yield Tensor(g + "enorm.weight", "mtp.pre_fc_norm_embedding.weight", (hidden,), "zero_norm")
    yield Tensor(g + "hnorm.weight", "mtp.pre_fc_norm_hidden.weight", (hidden,), "zero_norm")
    yield Tensor(g + "shared_head_norm.weight", "mtp.norm.weight", (hidden,), "zero_norm")


def attention(c, g, h, gated, norm):
    hidden, d = c["hidden_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * d, c["num_key_value_heads"] * d
    yield Tensor(g + "attn_q.weight", h + "q_proj.weight", (2 * q if gated else q, hidden))  # gated: q and gate per head
    yield Tensor(g + "attn_k.weight", h + "k_proj.weight", (kv, hidden))
    yield Tensor(g + "attn_v.weight", h + "v_proj.weight", (kv, hidden))
    yield Tensor(g + "attn_output.weight", h + "o_proj.weight", (hidden, q))
    if c["model_type"] != "llama":
        yield Tensor(g + "attn_q_norm.weight", h + "q_norm.weight", (d,), norm)
        yield Tensor(g + "attn_k_norm.weight", h + "k_norm.weight", (d,), norm)


def gated_delta(c, g, h):
    hidden, nv = c["hidden_size"], c["linear_num_value_heads"]
    keys, values = c["linear_num_key_heads"] * c["linear_key_head_dim"], nv * c["linear_value_head_dim"]
    yield Tensor(g + "attn_qkv.weight", h + "in_proj_qkv.weight", (2 * keys + values, hidden))
    yield Tensor(g + "attn_gate.weight", h + "in_proj_z.weight", (values, hidden))
    yield Tensor(g + "ssm_beta.weight", h + "in_proj_b.weight", (nv, hidden))
    yield Tensor(g + "ssm_alpha.weight", h + "in_proj_a.weight", (nv, hidden))
    yield Tensor(g + "ssm_conv1d.weight", h + "conv1d.weight", (2 * keys + values, c["linear_conv_kernel_dim"]), "conv")
    yield Tensor(g + "ssm_dt.bias", h + "dt_bias", (nv,), "dt_bias")
    yield Tensor(g + "ssm_a", h + "A_log", (nv,), "a_log")
    yield Tensor(g + "ssm_norm.weight", h + "norm.weight", (c["linear_value_head_dim"],), "norm")
    yield Tensor(g + "ssm_out.weight", h + "out_proj.weight", (hidden, values))


def mlp(g, h, hidden, inner, suffix=""):
    yield Tensor(g + f"ffn_gate{suffix}.weight", h + "gate_proj.weight", (inner, hidden))
    yield Tensor(g + f"ffn_up{suffix}.weight", h + "up_proj.weight", (inner, hidden))
    yield Tensor(g + f"ffn_down{suffix}.weight", h + "down_proj.weight", (hidden, inner))


def experts(c, g, h):
    hidden, count, inner = c["hidden_size"], c["num_experts"], c["moe_intermediate_size"]
    yield Tensor(g + "ffn_gate_inp.weight", h + "gate.weight", (count, hidden), "router")
    for name, shape in (("gate", (inner, hidden)), ("up", (inner, hidden)), ("down", (hidden, inner))):
        yield Tensor(g + f"ffn_{name}_exps.weight", h + f"experts.{{e}}.{name}_proj.weight", (count, *shape))
    if "shared_expert_intermediate_size" in c:
        yield from mlp(g, h + "shared_expert.", hidden, c["shared_expert_intermediate_size"], "_shexp")
        yield Tensor(g + "ffn_gate_inp_shexp.weight", h + "shared_expert_gate.weight", (hidden,), "router")


# ------------------------------------------------------------------------------------------------------- the values

def to_bf16(x):
    """float32 to bf16 bits, round to nearest even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def to_q6_k(x):
    """[n, 256] float32 to [n, 210] bytes: low nibbles, high bit pairs, 16 scales, one f16 scale (ggml's block_q6_K)."""
    sub = x.reshape(-1, 16, 16)
    peak = np.take_along_axis(sub, np.abs(sub).argmax(2)[..., None], 2)[..., 0]
    scale = peak / -32
    top = np.take_along_axis(scale, np.abs(scale).argmax(1)[:, None], 1)
    d = (top / -128).astype(np.float16)
    steps = np.clip(np.rint(scale / d.astype(np.float32)), -128, 127).astype(np.int8)
    unit = (d.astype(np.float32) * steps)[..., None]
    q = np.clip(np.rint(np.divide(sub, unit, out=np.zeros_like(sub), where=unit != 0)), -32, 31).astype(np.int8) + 32
    q = q.astype(np.uint8).reshape(-1, 2, 4, 32)  # block, half, quarter, position
    low = (q[:, :, :2] & 15) | ((q[:, :, 2:] & 15) << 4)
    high = (q >> 4) << np.array([0, 2, 4, 6], np.uint8)[:, None]
    high = high[:, :, 0] | high[:, :, 1] | high[:, :, 2] | high[:, :, 3]
    n = len(x)
    return np.hstack([low.reshape(n, 128), high.reshape(n, 64), steps.view(np.uint8), d.view(np.uint8).reshape(n, 2)])


class Values:
    """The numbers of every tensor, in any encoding, without ever holding a whole model."""

    def __init__(self, seed):
        self.seed = seed
        pool = np.random.default_rng(seed).standard_normal(POOL, np.float32) * np.float32(0.02)
        self.pool = from_bf16(to_bf16(pool)).reshape(-1, BLOCK)
        self.encoded = {}

    def rng(self, name):
        return np.random.default_rng([self.seed, zlib.crc32(name.encode())])

    def stream(self, name, rows, cols, kind):
        """The matrix called name, encoded as f32, bf16, f16, q8_0, q4_0 or q6_k, as a few bytes arrays [blocks, bytes]."""
        if cols % BLOCK != 0:
            raise ValueError(f"{name}: {cols} columns are no multiple of {BLOCK}, the largest quantisation block")
        if kind not in self.encoded:
            self.encoded[kind] = self.encode(kind).view(np.uint8).reshape(len(self.pool), -1)
        pool, rng, step = self.encoded[kind], self.rng(name), PIECE // BLOCK
        blocks = rows * cols // BLOCK
        for at in range(0, blocks, step):
            offset = int(rng.integers(0, len(pool) - step))
            yield pool[offset:offset + min(step, blocks - at)]

    def matrix(self, name, rows, cols, kind):
        """The same as one array [rows, bytes per row]."""
        return np.concatenate(list(self.stream(name, rows, cols, kind))).reshape(rows, -1)

    def encode(self, kind):
        if kind == "f32":
            return self.pool
        if kind == "bf16":
            return to_bf16(self.pool)
        if kind == "f16":
            return self.pool.astype(np.float16)
        if kind == "q6_k":
            return to_q6_k(self.pool)
        return gguf.quants.quantize(self.pool, gguf.GGMLQuantizationType[kind.upper()])

    def small(self, t):
        """Norms, biases, decays and convolutions: float32 holding bf16-exact values, in Hugging Face's convention."""
        rng = self.rng(t.gguf)
        if t.kind == "a_log":
            x = np.log(rng.uniform(1, 16, t.shape))
        elif t.kind == "conv":
            x = rng.normal(0, 0.5, t.shape)
        else:
            x = rng.normal(1 if t.kind == "norm" else 0, 0.1, t.shape)
        return from_bf16(to_bf16(x))


# --------------------------------------------------------------------------------------------------------- GGUF form

def mrope_sections(c):
    """Frequencies by axis, in turns; all three are the token's position in text."""
    pairs = int(c["head_dim"] * c["partial_rotary_factor"]) // 2
    return [(pairs + 2) // 3, (pairs + 1) // 3, pairs // 3]


def is_matrix(t):
    return t.kind in ("matrix", "head", "router")


def tile_heads(x, groups, per_group, rows_per_head, lead):
    """Reorders heads along axis 0 from grouped (g, j) to tiled (j, g), leaving the first `lead` rows in place."""
    heads = x[lead:].reshape(groups, per_group, rows_per_head, *x.shape[1:])
    return np.concatenate([x[:lead], heads.swapaxes(0, 1).reshape(x[lead:].shape)])


def gguf_form(t, x, c):
    """Hugging Face's row order and sign conventions to GGUF's. x is [rows, bytes per row], or a small float array."""
    if c["model_type"] == "llama" and t.gguf.endswith(("attn_q.weight", "attn_k.weight")):
        d = c["head_dim"]
        return x.reshape(-1, 2, d // 2, x.shape[1]).swapaxes(1, 2).reshape(x.shape)
    if t.kind == "zero_norm":
        return x + 1
    if t.kind == "a_log":
        x = -np.exp(x)
    name = t.gguf.split(".", 2)[-1]
    per_head = {"attn_qkv.weight": "v", "ssm_conv1d.weight": "v", "attn_gate.weight": "v", "ssm_out.weight": "columns",
                "ssm_beta.weight": 1, "ssm_alpha.weight": 1, "ssm_dt.bias": 1, "ssm_a": 1}.get(name)
    if per_head is None or c["linear_num_key_heads"] == c["linear_num_value_heads"]:
        return x
    nk, nv, dk, dv = (c["linear_" + k] for k in ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim"))
    if per_head == "columns":
        return x.reshape(len(x), nk, nv // nk, -1).swapaxes(1, 2).reshape(x.shape)
    lead = 2 * nk * dk if name in ("attn_qkv.weight", "ssm_conv1d.weight") else 0
    return tile_heads(x, nk, nv // nk, dv if per_head == "v" else 1, lead)


def gguf_type(t, matrix_type):
    if t.kind == "matrix":
        return matrix_type
    if t.kind == "head":
        return "q6_k" if matrix_type == "q4_0" else matrix_type
    return "f32"


def write_gguf(c, shape_name, values, matrix_type, out, progress):
    arch = GGUF_ARCH[c["model_type"]]
    writer = gguf.GGUFWriter(out, arch)
    add_metadata(writer, c, shape_name, matrix_type)
    todo = list(tensors(c))
    for t in todo:
        kind = gguf.GGMLQuantizationType[gguf_type(t, matrix_type).upper()]
        per_block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        # With a dtype other than uint8 the writer takes the shape in elements, whatever the type on disk.
        writer.add_tensor_info(t.gguf, t.shape, np.dtype(np.float32), math.prod(t.shape) // per_block * block_bytes, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with open(out, "ab") as f:  # tensor data follows the header, each tensor padded to 32 bytes
        f.write(bytes(-f.tell() % gguf.GGUF_DEFAULT_ALIGNMENT))
        for t in todo:
            for x in pieces(t, values, gguf_type(t, matrix_type)):
                f.write(np.ascontiguousarray(gguf_form(t, x, c)).data)
            f.write(bytes(-f.tell() % gguf.GGUF_DEFAULT_ALIGNMENT))
            progress(t, f.tell())


def pieces(t, values, kind):
    """The tensor's data in order: a small array, one matrix, one matrix per expert, or a vocabulary matrix in chunks."""
    if not is_matrix(t):
        yield values.small(t)
    elif len(t.shape) == 3:
        for e in range(t.shape[0]):
            yield values.matrix(f"{t.gguf}#{e}", *t.shape[1:], kind)
    elif t.gguf in ("token_embd.weight", "output.weight"):  # too large to hold, and no row changes place
        yield from values.stream(t.gguf, *t.shape, kind)
    else:
        yield values.matrix(t.gguf, *((1, *t.shape)[-2:]), kind)


def add_metadata(w, c, shape_name, matrix_type):
    w.add_name(f"random-{shape_name}")
    w.add_file_type(gguf.LlamaFileType[{"q4_0": "MOSTLY_Q4_0", "q8_0": "MOSTLY_Q8_0", "f16": "MOSTLY_F16"}[matrix_type]])
    ahead = c.get("mtp_num_hidden_layers", 0)  # GGUF counts these layers, Hugging Face does not
    w.add_block_count(c["num_hidden_layers"] + ahead)
    if ahead:
        w.add_nextn_predict_layers(ahead)
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_vocab_size(c["vocab_size"])
    w.add_feed_forward_length(c.get("intermediate_size", c.get("moe_intermediate_size")))
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_key_length(c["head_dim"])
    w.add_value_length(c["head_dim"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_rope_freq_base(c["rope_theta"])
    w.add_rope_dimension_count(int(c["head_dim"] * c.get("partial_rotary_factor", 1)))
    if "num_experts" in c:
        w.add_expert_count(c["num_experts"])
        w.add_expert_used_count(c["num_experts_per_tok"])
        w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    if "shared_expert_intermediate_size" in c:
        w.add_expert_shared_feed_forward_length(c["shared_expert_intermediate_size"])
    if "full_attention_interval" in c:
        w.add_rope_dimension_sections([*mrope_sections(c), 0])
        w.add_full_attention_interval(c["full_attention_interval"])
        w.add_ssm_conv_kernel(c["linear_conv_kernel_dim"])
        w.add_ssm_state_size(c["linear_key_head_dim"])
        w.add_ssm_group_count(c["linear_num_key_heads"])
        w.add_ssm_time_step_rank(c["linear_num_value_heads"])
        w.add_ssm_inner_size(c["linear_num_value_heads"] * c["linear_value_head_dim"])
    words, merges, specials = tokenizer()
    missing = [f"<|unused_{i}|>" for i in range(c["vocab_size"] - len(words) - len(specials))]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre({"llama": "llama-bpe"}.get(c["model_type"], "qwen2"))
    w.add_token_list(words + specials + missing)
    w.add_token_types([gguf.TokenType.NORMAL] * len(words) + [gguf.TokenType.CONTROL] * len(specials)
                      + [gguf.TokenType.UNUSED] * len(missing))
    w.add_token_merges([" ".join(m) for m in merges])
    w.add_bos_token_id(len(words))
    w.add_eos_token_id(len(words) + 1)
    w.add_add_bos_token(False)
    w.add_chat_template(CHAT_TEMPLATE)


# ------------------------------------------------------------------------------------------------ Hugging Face form

CHAT_TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                 "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def tokenizer():
    """(words, merges, specials) of a byte-level BPE: the 256 bytes and a few merges. Ids run through words, then specials."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in printable]
    words = [chr(b) if b in printable else chr(256 + rest.index(b)) for b in range(256)]
    space = words[32]
    merges = [("t", "h"), ("th", "e"), (space, "the"), ("i", "n"), ("a", "n"), (space, "a"), ("e", "r"), ("o", "n")]
    return words + [a + b for a, b in merges], merges, ["<|im_start|>", "<|im_end|>"]


def write_hf(c, values, out, progress):
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    entries = list(hf_entries(c))
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape, _ in entries:
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + 2 * math.prod(shape)]}
        at += 2 * math.prod(shape)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(out / "model.safetensors", "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for name, shape, parts in entries:
            for t, expert in parts:
                for x in hf_pieces(t, expert, values):
                    f.write(np.ascontiguousarray(x).data)
            progress(parts[0][0], f.tell())
    words, merges, specials = tokenizer()
    config = hf_config(c) | dict(bos_token_id=len(words), eos_token_id=len(words) + 1)
    (out / "config.json").write_text(json.dumps(config, indent=1))
    (out / "generation_config.json").write_text(json.dumps(dict(bos_token_id=len(words), eos_token_id=len(words) + 1)))
    (out / "tokenizer.json").write_text(json.dumps(tokenizer_json(words, merges, specials), ensure_ascii=False))
    (out / "tokenizer_config.json").write_text(json.dumps(dict(
        tokenizer_class="PreTrainedTokenizerFast", bos_token=specials[0], eos_token=specials[1], chat_template=CHAT_TEMPLATE), indent=1))


def hf_entries(c):
    """(name, shape, [(tensor, expert or None), ...]) of each safetensors entry; parts follow each other on disk."""
    fused = c["model_type"] == "qwen3_5_moe"
    todo = {t.gguf: t for t in tensors(c)}
    for t in todo.values():
        if len(t.shape) != 3:
            shape = (t.shape[0], 1, t.shape[1]) if t.kind == "conv" else t.shape
            yield t.hf, [1, *shape] if t.hf.endswith("shared_expert_gate.weight") else list(shape), [(t, None)]
        elif not fused:
            for e in range(t.shape[0]):
                yield t.hf.format(e=e), list(t.shape[1:]), [(t, e)]
        elif "ffn_gate_exps" in t.gguf:
            up, (count, inner, hidden) = todo[t.gguf.replace("gate_exps", "up_exps")], t.shape
            yield (t.hf.replace("{e}.gate_proj.weight", "gate_up_proj"), [count, 2 * inner, hidden],
                   [(part, e) for e in range(count) for part in (t, up)])
        elif "ffn_down_exps" in t.gguf:
            yield t.hf.replace("{e}.down_proj.weight", "down_proj"), list(t.shape), [(t, e) for e in range(t.shape[0])]


def hf_pieces(t, expert, values):
    if expert is not None:
        return [values.matrix(f"{t.gguf}#{expert}", *t.shape[1:], "bf16")]
    return pieces(t, values, "bf16") if is_matrix(t) else [to_bf16(values.small(t))]


def hf_config(c):
    config = {k: v for k, v in c.items() if k not in ("rope_theta", "partial_rotary_factor")}
    config |= dict(architectures=[HF_CLASS[c["model_type"]]], dtype="bfloat16", hidden_act="silu", attention_bias=False)
    rope = dict(rope_type="default", rope_theta=c["rope_theta"])
    if c["model_type"].startswith("qwen3_5"):
        rope |= dict(partial_rotary_factor=c["partial_rotary_factor"], mrope_section=mrope_sections(c), mrope_interleaved=True)
        config |= dict(model_type=c["model_type"] + "_text", attn_output_gate=True, mamba_ssm_dtype="float32", layer_types=[
            "full_attention" if (i + 1) % c["full_attention_interval"] == 0 else "linear_attention" for i in range(c["num_hidden_layers"])])
    if c["model_type"] == "qwen3_moe":
        config |= dict(norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[], intermediate_size=c["moe_intermediate_size"])
    return config | dict(rope_parameters=rope)


def tokenizer_json(words, merges, specials):
    byte_level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=False, use_regex=True)
    return dict(
        version="1.0", truncation=None, padding=None, normalizer=None, pre_tokenizer=byte_level, post_processor=None, decoder=byte_level,
        added_tokens=[dict(id=len(words) + i, content=s, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
                      for i, s in enumerate(specials)],
        model=dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None,
                   fuse_unk=False, byte_fallback=False, vocab={word: i for i, word in enumerate(words)}, merges=[list(m) for m in merges]))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("shape", choices=SHAPES)
    p.add_argument("out", help="the file to write, or with --hf the folder")
    p.add_argument("--type", choices=["q4_0", "q8_0", "f16"], default="q4_0", help="of the GGUF's matrices (default: q4_0)")
    p.add_argument("--hf", action="store_true", help="write a Hugging Face folder in BF16 instead of a GGUF file")
    p.add_argument("--layers", type=int, help="instead of the shape's number of layers (qwen35*: a multiple of 4)")
    p.add_argument("--mtp", action="store_true", help="qwen35*: with the layer that predicts one token further")
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    if np is None:
        sys.exit("mkmodel.py needs the Python packages numpy and gguf: pip install numpy gguf")
    c = dict(SHAPES[a.shape])
    if a.layers:
        c["num_hidden_layers"] = a.layers
    if a.mtp:
        if not c["model_type"].startswith("qwen3_5"):
            p.error(f"--mtp: {a.shape} has no such layer, the shapes of Qwen3.5 have")
        c["mtp_num_hidden_layers"] = 1
    start, count, done = time.monotonic(), len(list(tensors(c))), set()
    on_terminal = sys.stderr.isatty()

    def progress(t, size):
        done.add(t.gguf)
        if on_terminal or len(done) % 50 == 0:
            line = f"{len(done)}/{count} {size / 1e9:6.2f} GB {time.monotonic() - start:5.0f} s  {t.gguf:40}"
            print(f"\r{line}" if on_terminal else line, end="" if on_terminal else "\n", file=sys.stderr, flush=True)

    values = Values(a.seed)
    if a.hf:
        write_hf(c, values, a.out, progress)
    else:
        write_gguf(c, a.shape, values, a.type, a.out, progress)
    params = sum(math.prod(t.shape) for t in tensors(c))
    if on_terminal:
        print(file=sys.stderr)
    print(f"{a.out}: {a.shape}, {params / 1e9:.3f} G weights", file=sys.stderr)


if __name__ == "__main__":
    main()
