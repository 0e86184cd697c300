"""A tiny model as a publisher lays it out: config, byte-level tokenizer with a chat template, random F32 weights. No package needed."""
import array
import json
import pathlib
import random
import struct

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD = 64, 128, 2, 4, 2, 16
SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def byte_letters():
    """GPT-2's letter for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(spare)) for b in range(256)]


def tokenizer():
    vocabulary = {letter: i for i, letter in enumerate(byte_letters())}
    added = [{"id": 256 + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for i, text in enumerate(SPECIAL)]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None, "pre_tokenizer": level,
            "post_processor": None, "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocabulary, "merges": []}}


def config(max_context):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": INNER,
            "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD,
            "vocab_size": 256 + len(SPECIAL), "max_position_embeddings": max_context, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
            "hidden_act": "silu", "tie_word_embeddings": False, "bos_token_id": 256, "eos_token_id": 259, "torch_dtype": "float32"}


def shapes():
    vocabulary, kv = 256 + len(SPECIAL), KV_HEADS * HEAD
    yield "model.embed_tokens.weight", (vocabulary, HIDDEN)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        yield at + "input_layernorm.weight", (HIDDEN,)
        yield at + "self_attn.q_proj.weight", (HIDDEN, HIDDEN)
        yield at + "self_attn.k_proj.weight", (kv, HIDDEN)
        yield at + "self_attn.v_proj.weight", (kv, HIDDEN)
        yield at + "self_attn.o_proj.weight", (HIDDEN, HIDDEN)
        yield at + "post_attention_layernorm.weight", (HIDDEN,)
        yield at + "mlp.gate_proj.weight", (INNER, HIDDEN)
        yield at + "mlp.up_proj.weight", (INNER, HIDDEN)
        yield at + "mlp.down_proj.weight", (HIDDEN, INNER)
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (vocabulary, HIDDEN)


def weights(seed, head):
    draw = random.Random(seed)
    header, data = {}, bytearray()
    for name, shape in shapes():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        spread = head if name == "lm_head.weight" else 0.1
        values = array.array("f", (1.0 if len(shape) == 1 else draw.gauss(0, spread) for _ in range(count))).tobytes()
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(data)


def files(seed=1, template=TEMPLATE, max_context=2048, head=0.1):
    """name -> bytes of every file of the model; `template` "": none; `head`: how far logits are apart."""
    special = {"bos_token": "<s>", "eos_token": "<|im_end|>", "add_bos_token": False, "tokenizer_class": "PreTrainedTokenizerFast",
               "model_max_length": max_context, **({"chat_template": template} if template else {})}
    as_json = {"config.json": config(max_context), "tokenizer.json": tokenizer(), "tokenizer_config.json": special,
               "generation_config.json": {"eos_token_id": [257, 259]}}
    made = {name: (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode() for name, value in as_json.items()}
    return {**made, "model.safetensors": weights(seed, head)}


def write(folder, **options):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files(**options).items():
        (folder / name).write_bytes(content)
    return folder
