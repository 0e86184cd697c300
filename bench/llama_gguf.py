"""A Hugging Face folder of a llama model with a byte-level BPE tokenizer (tools/train_small.py) as an FP32 GGUF file."""
import json
import pathlib

import gguf
import numpy as np
from safetensors import safe_open

LAYER = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def _name(name):
    stem = name.removesuffix(".weight")
    if stem in TOP:
        return f"{TOP[stem]}.weight"
    layer, _, rest = stem.removeprefix("model.layers.").partition(".")
    return f"blk.{layer}.{LAYER[rest]}.weight"


def _rows(name, values, head_dim):
    """Rows of q and k in pairs (2i, 2i + 1) for RoPE, where Hugging Face has (i, i + d/2)."""
    if not name.endswith(("attn_q.weight", "attn_k.weight")):
        return values
    return np.ascontiguousarray(values.reshape(-1, 2, head_dim // 2, values.shape[1]).swapaxes(1, 2).reshape(values.shape))


def write(folder, out):
    """Writes `folder` to `out`. Words are split as GPT-2 does, which train_small.py's tokenizers do."""
    folder = pathlib.Path(folder)
    c = json.loads((folder / "config.json").read_text())
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    w = gguf.GGUFWriter(out, "llama")
    w.add_name(folder.name)
    w.add_file_type(gguf.LlamaFileType.ALL_F32)
    w.add_block_count(c["num_hidden_layers"])
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_vocab_size(c["vocab_size"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_rope_freq_base(c.get("rope_theta") or c["rope_parameters"]["rope_theta"])
    w.add_rope_dimension_count(c["head_dim"])
    _add_tokenizer(w, tokenizer, c["vocab_size"])
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "np") as tensors:
            for name in tensors.keys():
                values = tensors.get_tensor(name).astype(np.float32)
                w.add_tensor(_name(name), _rows(_name(name), values, c["head_dim"]))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def _add_tokenizer(w, tokenizer, vocabulary):
    words = sorted(tokenizer["model"]["vocab"].items(), key=lambda item: item[1])
    tokens = [word for word, _ in words] + [f"[unused{i}]" for i in range(len(words), vocabulary)]
    special = {t["id"] for t in tokenizer["added_tokens"]} | set(range(len(words), vocabulary))
    merges = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(tokens)
    w.add_token_types([gguf.TokenType.CONTROL if i in special else gguf.TokenType.NORMAL for i in range(vocabulary)])
    w.add_token_merges(merges)
    w.add_bos_token_id(0)
    w.add_eos_token_id(0)
    w.add_add_bos_token(False)


def added_bos(file):
    """The id that engines put before a text, or None where they put none."""
    fields = gguf.GGUFReader(file).fields
    model = fields["tokenizer.ggml.model"].contents()
    adds = fields["tokenizer.ggml.add_bos_token"].contents() if "tokenizer.ggml.add_bos_token" in fields else model == "llama"
    return int(fields["tokenizer.ggml.bos_token_id"].contents()) if adds else None
