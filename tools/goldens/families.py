"""The tiny configurations: per family an odd one, whose widths no integer kernel takes, one of group 64, one of group 128.

Odd widths catch every mix-up of dimensions (heads * head_dim != hidden, no two sizes equal by accident); the other two
are what the quantised kernels run, each input at least four groups long. `odd` configs are written the way older
checkpoints write theirs (rope_theta, rope_scaling), the others in the dialect of the transformers release that made
them: both must be read.
"""

from dataclasses import dataclass


@dataclass
class Family:
    name: str
    architecture: str  # the transformers class
    common: dict  # keys of every width
    odd: dict
    g64: dict
    g128: dict
    tokens: int  # T of the odd and the group-128 golden: more than every window and rope boundary
    tokens_odd: int = 0  # T of the odd golden where it is longer: many edges of a recurrent state's chunks
    tokens_g64: int = 0  # T of the group-64 golden where it is longer: past 256, where attention begins its second block
    zero_centred: bool = False  # norms are stored as an offset from 1
    small_keys: bool = False  # attention does not divide by sqrt(head_dim): the norm of keys does
    noise: float = 1e-5  # how far prefill, single tokens and segments may be apart: they are other sums in the library

    def widths(self) -> dict[str, tuple[dict, int]]:
        """Width -> (config keys, tokens)."""
        return {
            "odd": (self.common | self.odd, self.tokens_odd or self.tokens),
            "g64": (self.common | self.g64, self.tokens_g64 or self.tokens),
            "g128": (self.common | self.g128, self.tokens),
        }


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}


def dense(hidden: int, intermediate: int, heads: int, kv_heads: int, head_dim: int | None, vocabulary: int, **more) -> dict:
    sizes = {
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": 2,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocabulary,
        "max_position_embeddings": 512,
    }
    return sizes | ({"head_dim": head_dim} if head_dim else {}) | more


def experts(count: int, used: int, width: int, **more) -> dict:
    return {"num_experts": count, "num_experts_per_tok": used, "moe_intermediate_size": width} | more


GPT_OSS = {
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                     "original_max_position_embeddings": 16},
    "sliding_window": 6,
    "attention_bias": True,
    "tie_word_embeddings": False,
}


def gpt_oss_sizes() -> dict[str, dict]:
    """The limit is so low that drawn gates and ups exceed it."""
    more = {"num_local_experts": 4, "num_experts_per_tok": 2, "swiglu_limit": 1.5}
    return {
        "odd": dense(48, 80, 4, 2, 24, 101) | more,
        "g64": dense(320, 320, 5, 1, 64, 101) | more | {"num_local_experts": 6, "num_experts_per_tok": 3},
        "g128": dense(512, 512, 10, 2, 64, 128) | more,
    }


GRANITE = {
    "rms_norm_eps": 1e-5,
    "embedding_multiplier": 7.0,
    "attention_multiplier": 0.11,
    "residual_multiplier": 0.37,
    "logits_scaling": 3.0,
    "tie_word_embeddings": True,
    "rope_theta": 10000.0,
}


def hybrid(position_embedding: str | None) -> dict:
    return GRANITE | {
        "layer_types": ["attention", "attention"],
        "num_local_experts": 0,
        "num_experts_per_tok": 0,
        "position_embedding_type": position_embedding,
        "mamba_n_heads": 4,  # present, though unused, in the published dense configs
        "mamba_expand": 2,
        "mamba_d_head": "auto",
    }


def granite_sizes(shared: bool) -> dict[str, dict]:
    """Granite ignores a head_dim: it is hidden / heads."""
    sizes = {
        "odd": dense(48, 80, 4, 2, None, 101),
        "g64": dense(320, 448, 10, 2, None, 101),
        "g128": dense(512, 640, 8, 2, None, 128),
    }
    if not shared:
        sizes["g128"] |= {"attention_bias": True, "mlp_bias": True}
    if shared:
        for size in sizes.values():
            size["shared_intermediate_size"] = size["intermediate_size"]
            size["intermediate_size"] = 72  # of the experts, which a dense model does not have
    return sizes


GEMMA3 = {
    "num_hidden_layers": 6,
    "query_pre_attn_scalar": 13,
    "sliding_window": 5,
    "sliding_window_pattern": 3,
    "rope_theta": 1000.0,
    "rope_local_base_freq": 50.0,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}

GEMMA4 = {
    "sliding_window": 5,
    "final_logit_softcapping": 3.0,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000.0},
    },
}


def gemma4_sizes(large: bool) -> dict[str, dict]:
    """Small models share caches and embed by layer; large ones have wider full layers whose keys are their values."""
    s, f = "sliding_attention", "full_attention"
    sizes = {
        "odd": dense(48, 80, 4, 2, 8, 101, global_head_dim=16, layer_types=[s, f] * 3),
        "g64": dense(320, 448, 5, 1, 64, 101, global_head_dim=128, layer_types=[s, s, f, s, f]),
        "g128": dense(512, 640, 4, 2, 128, 128, global_head_dim=256, layer_types=[s, f, s, f]),
    }
    for width, keys in sizes.items():
        keys["num_hidden_layers"] = len(keys["layer_types"])
        keys["vocab_size_per_layer_input"] = keys["vocab_size"]
        if large:
            keys |= {"attention_k_eq_v": True, "num_global_key_value_heads": 1, "hidden_size_per_layer_input": 0}
        else:
            keys |= {"num_kv_shared_layers": 2, "use_double_wide_mlp": width != "g64",
                     "hidden_size_per_layer_input": {"odd": 6, "g64": 320, "g128": 512}[width]}
    return sizes


LFM2 = {
    "norm_eps": 1e-5,
    "conv_L_cache": 3,
    "tie_word_embeddings": True,
    "rope_theta": 1000.0,
}


def lfm2_sizes() -> dict[str, dict]:
    kinds = {"num_hidden_layers": 4, "layer_types": ["conv", "full_attention", "conv", "conv"]}
    two = {"num_hidden_layers": 2, "layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False}
    return {
        "odd": dense(48, 80, 4, 2, None, 101) | kinds | {"block_auto_adjust_ff_dim": True, "block_multiple_of": 8},  # -> 56
        "g64": dense(320, 448, 10, 2, None, 101) | two | {"conv_bias": True},
        "g128": dense(512, 640, 8, 2, None, 128) | two | {"conv_L_cache": 4},
    }


def lfm2_moe_sizes() -> dict[str, dict]:
    """Dense layers first; weights renormalised or not, scaled or not, chosen with a bias or without."""
    sizes = lfm2_sizes()
    for keys in sizes.values():
        for key in ("block_auto_adjust_ff_dim", "block_multiple_of"):
            keys.pop(key, None)
    sizes["odd"] |= experts(6, 2, 20, num_dense_layers=1, routed_scaling_factor=1.7)
    sizes["g64"] |= experts(8, 3, 320, num_dense_layers=1, norm_topk_prob=False, routed_scaling_factor=1.25)
    sizes["g128"] |= experts(5, 2, 512, num_dense_layers=0, use_expert_bias=False)
    return sizes


QWEN3_5 = {
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "attention_bias": False,
    "linear_conv_kernel_dim": 4,
}


def qwen3_5_sizes() -> dict[str, dict]:
    def sizes(decoder: dict, heads: tuple, dims: tuple, sections: list, tied: bool, layers: list) -> dict:
        rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25, "mrope_section": sections,
                "mrope_interleaved": True}
        return decoder | {
            "num_hidden_layers": len(layers), "layer_types": layers, "tie_word_embeddings": tied, "rope_parameters": rope,
            "linear_num_key_heads": heads[0], "linear_num_value_heads": heads[1], "linear_key_head_dim": dims[0],
            "linear_value_head_dim": dims[1]}

    linear, full = "linear_attention", "full_attention"
    return {
        "odd": sizes(dense(48, 80, 3, 1, 32, 101), (2, 6), (8, 12), [2, 1, 1], False, [linear, linear, linear, full]),
        "g64": sizes(dense(320, 448, 5, 1, 64, 101), (5, 10), (16, 32), [4, 2, 2], True, [linear, full]),
        "g128": sizes(dense(512, 640, 4, 2, 128, 128), (4, 8), (32, 64), [6, 5, 5], False, [linear, full]),
    }


def qwen3_5_moe_sizes() -> dict[str, dict]:
    """Experts and a shared one of another width in place of the MLP."""
    sizes = qwen3_5_sizes()
    for width, (count, used, routed, shared) in {"odd": (8, 3, 20, 28), "g64": (6, 2, 320, 384), "g128": (5, 3, 512, 640)}.items():
        del sizes[width]["intermediate_size"]
        sizes[width] |= experts(count, used, routed, shared_expert_intermediate_size=shared)
    return sizes


FAMILIES = [
    Family(
        "llama",
        "LlamaForCausalLM",
        {"rms_norm_eps": 1e-5, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False,
         "rope_theta": 10000.0, "rope_scaling": LLAMA3},
        dense(48, 80, 4, 2, 16, 101),
        dense(320, 448, 10, 2, 32, 101),
        dense(512, 640, 8, 2, 64, 128),
        tokens=70,
        tokens_g64=300,
    ),
    Family(
        "llama-plain",  # SmolLM2's kind: no biases, tied, no scaling, head_dim left to be derived
        "LlamaForCausalLM",
        {"rms_norm_eps": 1e-5, "tie_word_embeddings": True, "rope_theta": 100000.0},
        dense(48, 80, 4, 2, None, 101),
        dense(320, 448, 5, 1, None, 101),
        dense(512, 640, 8, 8, None, 128, rope_scaling={"rope_type": "linear", "factor": 2.0}),
        tokens=70,
    ),
    Family(
        "qwen2",
        "Qwen2ForCausalLM",
        {"rms_norm_eps": 1e-6, "tie_word_embeddings": True, "rope_theta": 10000.0, "use_sliding_window": False},
        dense(48, 80, 4, 2, None, 101),
        dense(320, 448, 10, 2, None, 101),
        dense(512, 640, 8, 2, None, 128, tie_word_embeddings=False),
        tokens=70,
    ),
    Family(
        "qwen3",
        "Qwen3ForCausalLM",
        {"rms_norm_eps": 1e-6, "tie_word_embeddings": True, "rope_theta": 1000000.0, "attention_bias": False},
        dense(48, 80, 4, 2, 24, 101),
        dense(320, 448, 20, 4, 16, 101, rope_scaling=YARN),
        # heads * head_dim = 640, not hidden
        dense(512, 640, 10, 2, 64, 128, tie_word_embeddings=False, attention_bias=True),
        tokens=70,
    ),
    Family(
        "qwen2-sliding",  # layer 1 slides; no published checkpoint does, but the keys are there
        "Qwen2ForCausalLM",
        {"rms_norm_eps": 1e-6, "tie_word_embeddings": True, "rope_theta": 10000.0, "use_sliding_window": True,
         "sliding_window": 5, "max_window_layers": 1},
        dense(48, 80, 4, 2, None, 101),
        dense(320, 448, 10, 2, None, 101),
        dense(512, 640, 8, 2, None, 128),
        tokens=20,
    ),
    Family(
        "qwen3_moe",
        "Qwen3MoeForCausalLM",
        {"rms_norm_eps": 1e-6, "tie_word_embeddings": False, "rope_theta": 1000000.0, "attention_bias": False,
         "decoder_sparse_step": 1, "mlp_only_layers": []},
        dense(48, 80, 4, 2, 24, 101) | experts(8, 3, 20, norm_topk_prob=False)
        | {"num_hidden_layers": 3, "mlp_only_layers": [1]},
        dense(320, 448, 20, 4, 16, 101) | experts(8, 2, 320, norm_topk_prob=True),
        dense(512, 640, 10, 2, 64, 128) | experts(5, 3, 512, norm_topk_prob=True)
        | {"num_hidden_layers": 3, "decoder_sparse_step": 2},  # layer 1 alone has experts
        tokens=24,
    ),
    Family("gpt_oss", "GptOssForCausalLM", GPT_OSS, **gpt_oss_sizes(), tokens=24),
    Family("granite", "GraniteForCausalLM", GRANITE, **granite_sizes(False), tokens=70),
    Family("granitemoehybrid", "GraniteMoeHybridForCausalLM", hybrid("rope"), **granite_sizes(True), tokens=70),
    Family(
        "granitemoehybrid-experts",
        "GraniteMoeHybridForCausalLM",
        hybrid("rope"),
        granite_sizes(True)["odd"] | {"num_local_experts": 6, "num_experts_per_tok": 3, "intermediate_size": 28},
        granite_sizes(True)["g64"] | {"num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 320},
        granite_sizes(True)["g128"] | {"num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 512},
        tokens=24,
    ),
    Family("granitemoehybrid-nope", "GraniteMoeHybridForCausalLM", hybrid(None), **granite_sizes(True), tokens=70),
    Family(
        "gemma3",
        "Gemma3ForCausalLM",
        GEMMA3,
        dense(48, 80, 4, 2, 16, 101) | {"num_hidden_layers": 6},
        dense(320, 448, 5, 1, 64, 101) | {"num_hidden_layers": 6},
        dense(512, 640, 4, 2, 128, 128, rope_scaling={"rope_type": "linear", "factor": 8.0}, final_logit_softcapping=3.0)
        | {"num_hidden_layers": 6},  # as 4B and up scale their full layers; the cap is what later kin have
        tokens=20,
        tokens_g64=300,
        zero_centred=True,
    ),
    Family("gemma4", "Gemma4ForCausalLM", GEMMA4, **gemma4_sizes(False), tokens=24, tokens_odd=130, tokens_g64=300, small_keys=True),
    Family("gemma4-large", "Gemma4ForCausalLM", GEMMA4, **gemma4_sizes(True), tokens=24, small_keys=True),
    Family("lfm2", "Lfm2ForCausalLM", LFM2, **lfm2_sizes(), tokens=40, tokens_odd=130),
    Family("lfm2_moe", "Lfm2MoeForCausalLM", LFM2, **lfm2_moe_sizes(), tokens=24, tokens_odd=130),
    Family("qwen3_5", "Qwen3_5ForCausalLM", QWEN3_5, **qwen3_5_sizes(), tokens=40, tokens_odd=130, zero_centred=True, noise=5e-5),
    Family("qwen3_5_moe", "Qwen3_5MoeForCausalLM", QWEN3_5, **qwen3_5_moe_sizes(), tokens=24, tokens_odd=130, zero_centred=True,
           noise=5e-5),
]
