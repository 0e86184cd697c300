#!/usr/bin/env python3
"""Writes tests/goldens/real-<model>.safetensors: what transformers computes, in FP32, from the weights of a real GGUF.

    python tools/goldens/real.py DIR [--only smollm2]        # DIR: where tools/fetch_models.py put the files

The GGUF is dequantised here and loaded into the transformers class under its published names: rows of llama's q and k
back from pairs to halves, gemma's norms back to offsets from 1. Two checks before a file is written: transformers' own
GGUF loader must give the same logits, and the perplexity of the text must be that of a language model.

Tensors: `ids` I64 [T], `log_sum_exp` F32 [T], `top_ids` I32 [T, 64], `top_logits` F32 [T, 64] (descending), `noise` F32
[T]: how far these are from what the same class gives in FP64. The ids are two sequences, one after another (metadata
`parts`): text.txt, longer than gemma's window of 512, and drawn ids.

The noise is stored because FP32 cannot always decide: at the second drawn token a channel of SmolLM2's residual stream
reaches 23,000, and the order of a sum alone moves the logits by 2e-6 to 2e-4 of the largest.
"""

import argparse
import json
import sys
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers

import draw
import golden_file

sys.path.insert(0, str(Path(__file__).parents[1]))
from fetch_models import MODELS, sha256  # noqa: E402

TEXT_TOKENS, DRAWN_TOKENS, TOP, SEED = 568, 32, 64, 20261

BLOCK_NAMES = {  # GGUF "blk.N.<key>.weight" -> Hugging Face "model.layers.N.<value>.weight"
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
}
FFN_NORMS = {
    "llama": {"ffn_norm": "post_attention_layernorm"},
    "gemma3": {
        "post_attention_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    },
}


class Gguf:
    def __init__(self, path: Path):
        self.path = path
        self.reader = gguf.GGUFReader(path)
        self.architecture = self.field("general.architecture")

    def field(self, key: str, default=None):
        found = self.reader.fields.get(key)
        return default if found is None else found.contents()

    def number(self, key: str, default=None):
        return self.field(f"{self.architecture}.{key}", default)


def published_name(name: str, architecture: str) -> str:
    plain = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    stem = name.removesuffix(".weight")
    if stem in plain:
        return plain[stem] + ".weight"
    _, layer, key = stem.split(".")
    return f"model.layers.{layer}.{(BLOCK_NAMES | FFN_NORMS[architecture])[key]}.weight"


def halves(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows of each head from pairs (2i, 2i + 1) to halves (i, i + d/2)."""
    return rows.reshape(heads, -1, 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def weights(file: Gguf) -> dict[str, torch.Tensor]:
    """Every tensor in FP32 under its published name, as published."""
    out = {}
    for t in file.reader.tensors:
        w = np.asarray(gguf.quants.dequantize(t.data, t.tensor_type), dtype=np.float32)
        if file.architecture == "llama" and (".attn_q." in t.name or ".attn_k." in t.name):
            w = halves(w, file.number("attention.head_count" + ("_kv" if ".attn_k." in t.name else "")))
        if file.architecture == "gemma3" and t.name.endswith("norm.weight"):
            w = w - np.float32(1)
        out[published_name(t.name, file.architecture)] = torch.from_numpy(np.array(w))
    return out


def config(file: Gguf):
    sizes = dict(
        hidden_size=file.number("embedding_length"),
        intermediate_size=file.number("feed_forward_length"),
        num_hidden_layers=file.number("block_count"),
        num_attention_heads=file.number("attention.head_count"),
        num_key_value_heads=file.number("attention.head_count_kv"),
        vocab_size=len(file.field("tokenizer.ggml.tokens")),
        max_position_embeddings=file.number("context_length"),
        rms_norm_eps=file.number("attention.layer_norm_rms_epsilon"),
        rope_theta=file.number("rope.freq_base"),
        tie_word_embeddings=True,
    )
    if file.architecture == "llama":
        return transformers.LlamaConfig.from_dict(sizes)
    head_dim = file.number("attention.key_length")
    return transformers.Gemma3TextConfig.from_dict(
        sizes
        | dict(
            head_dim=head_dim,
            query_pre_attn_scalar=head_dim,
            sliding_window=file.number("attention.sliding_window"),
            sliding_window_pattern=6,  # this and the next are not in the file
            rope_local_base_freq=10000.0,
        )
    )


def load(file: Gguf):
    settings = config(file)
    settings._attn_implementation = "eager"
    cls = transformers.LlamaForCausalLM if file.architecture == "llama" else transformers.Gemma3ForCausalLM
    model = cls(settings).eval()
    missing, unexpected = model.load_state_dict(weights(file), strict=False)
    if unexpected or set(missing) - {"lm_head.weight"}:
        sys.exit(f"{file.path}: tensors do not fit: missing {missing}, unexpected {unexpected}")
    model.tie_weights()
    return model


def text_ids(file: Gguf, text: str) -> list[int]:
    """Ids of a text, BOS first where the file asks for it. Good enough for a realistic input; the golden stores them."""
    pieces = file.field("tokenizer.ggml.tokens")
    if file.field("tokenizer.ggml.model") == "gpt2":
        from tokenizers import Tokenizer, models, pre_tokenizers

        merges = [tuple(m.split(" ")) for m in file.field("tokenizer.ggml.merges")]
        tokenizer = Tokenizer(models.BPE({p: i for i, p in enumerate(pieces)}, merges))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        return tokenizer.encode(text).ids
    rank = {p: (s, i) for i, (p, s) in enumerate(zip(pieces, file.field("tokenizer.ggml.scores")))}
    ids = [file.field("tokenizer.ggml.bos_token_id")]
    for line in text.replace(" ", "\u2581").splitlines(keepends=True):
        parts = list(line)
        while True:  # merge the pair whose piece has the best score, leftmost first
            scored = [(-rank[a + b][0], i) for i, (a, b) in enumerate(zip(parts, parts[1:])) if a + b in rank]
            if not scored:
                break
            i = min(scored)[1]
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
        ids += [rank[p][1] for p in parts]
    return ids


@torch.no_grad()
def logits_of(model, sequences: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([model(torch.from_numpy(s)[None]).logits[0].numpy() for s in sequences])


def check(file: Gguf, logits: np.ndarray, sequences: list[np.ndarray]) -> float:
    """Our loading against transformers' own, and the text's perplexity. Returns the relative deviation."""
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        file.path.parent, gguf_file=file.path.name, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    other = logits_of(theirs, sequences)
    deviation = float(np.max(np.abs(logits - other)) / np.max(np.abs(logits)))
    text, rows = sequences[0], torch.from_numpy(logits[: len(sequences[0])]).double().log_softmax(-1).numpy()
    perplexity = float(np.exp(-np.mean(rows[np.arange(len(text) - 1), text[1:]])))
    print(f"{file.path.name}: against transformers' loader {deviation:.3g}, perplexity of the text {perplexity:.2f}")
    if perplexity > 40:
        sys.exit(f"{file.path}: that is not a language model: the weights are loaded wrongly")
    return deviation


def what_is_stored(logits: np.ndarray, top: np.ndarray) -> np.ndarray:
    """[T, 1 + TOP] in FP64: the log-sum-exp, and the logits of `top`."""
    log_sum_exp = torch.from_numpy(logits).double().logsumexp(-1).numpy()
    return np.concatenate([log_sum_exp[:, None], np.take_along_axis(logits, top, axis=1).astype(np.float64)], axis=1)


def make(name: str, path: Path, out: Path) -> None:
    file = Gguf(path)
    if sha256(path) != MODELS[name]["sha256"]:
        sys.exit(f"{path}: not the file that tools/fetch_models.py fetches")
    text = text_ids(file, (Path(__file__).parent / "text.txt").read_text(encoding="utf-8"))
    if len(text) < TEXT_TOKENS:
        sys.exit(f"text.txt has {len(text)} tokens, {TEXT_TOKENS} are needed")
    vocabulary = len(file.field("tokenizer.ggml.tokens"))
    drawn = draw.ids(SEED, DRAWN_TOKENS, vocabulary)
    sequences = [np.array(text[:TEXT_TOKENS], dtype=np.int64), drawn]
    model = load(file)
    logits = logits_of(model, sequences)
    deviation = check(file, logits, sequences)
    exact = logits_of(model.double(), sequences)
    top = np.argsort(-logits, axis=1, kind="stable")[:, :TOP]
    stored, in_double = what_is_stored(logits, top), what_is_stored(exact, top)
    noise = np.abs(stored - in_double).max(axis=1)
    print(f"  against FP64, relative: {noise.max() / stored.max():.3g}, 99 % of positions {np.quantile(noise, 0.99) / stored.max():.3g}")
    golden_file.save(
        out / f"real-{name}.safetensors",
        {
            "ids": np.concatenate(sequences),
            "log_sum_exp": stored[:, 0].astype(np.float32),
            "top_ids": top.astype(np.int32),
            "top_logits": stored[:, 1:].astype(np.float32),
            "noise": noise.astype(np.float32),
        },
        {
            "model": name,
            "model_file": path.name,
            "model_sha256": MODELS[name]["sha256"],
            "parts": json.dumps([len(s) for s in sequences]),
            "seed": str(SEED),
            "deviation from transformers' loader": str(deviation),
            "script": "tools/goldens/real.py",
            "transformers": transformers.__version__,
            "torch": torch.__version__.split("+")[0],
            "gguf": __import__("importlib.metadata").metadata.version("gguf"),
        },
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", type=Path, metavar="DIR", help="folder of the GGUF files")
    parser.add_argument("--only", choices=sorted(MODELS))
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "tests" / "goldens")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    transformers.utils.logging.disable_progress_bar()
    for name in MODELS:
        if arguments.only in (None, name):
            make(name, arguments.models / MODELS[name]["file"], arguments.out)


if __name__ == "__main__":
    main()
