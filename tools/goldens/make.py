#!/usr/bin/env python3
"""Writes tests/goldens/<family>-<width>.safetensors: logits of the transformers classes on tiny models, FP32, eager.

    python tools/goldens/make.py [--only llama,gemma3] [--out tests/goldens]

Needs torch, transformers, safetensors and numpy; the tests need none of them. Each file holds `ids` I64 [T] and
`logits` F32 [T, vocabulary] of one prefill, and as metadata what a test needs to draw the same parameters again
(`seed`, `tensors`: name, shape, exponent and offset for draw.py) and to convert them (`config`: config.json).
Before a file is written, the script checks that
  - the names are those that save_pretrained writes;
  - prefill, prefill then single tokens, and uneven segments agree (the deviation is in the metadata);
  - every parameter matters: with any one tensor set to its offset the logits move by more than 1e-3.
"""

import argparse
import copy
import json
import math
import re
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors import safe_open

import draw
import golden_file
from families import FAMILIES, Family

SEED = 20261
SEGMENTS = [7, 1, 5, 1, 1, 3, 11]  # repeated as often as the length needs; the last is cut


def parameter_rule(name: str, shape: list[int], family: Family) -> tuple[int, int]:
    """(exponent, offset): norms vary by 0.29 around 1 (or 0), biases around 0, matrices keep a row's size about equal.

    An embedding of that size lets neither the first norm's eps nor, where it is tied, the token itself rule the logits.
    Queries and keys are drawn half again as large, so that attention is far from uniform.
    """
    if family.small_keys and name.endswith("k_norm.weight"):
        return -10, 0  # 0.14: the logits of attention vary by 0.4 (head_dim 8) to 2.3 (256)
    if name.endswith(("norm.weight", "layer_scalar")):
        return -9, 0 if family.zero_centred and "linear_attn" not in name else 1
    if name.endswith(("A_log", "dt_bias", "expert_bias")):
        return -8, 0  # decays within a token and within hundreds; experts chosen in another order than weighed
    if name.endswith("sinks"):
        return -6, 0
    if len(shape) == 1 or name.endswith("_bias"):
        return -9, 0
    gain = 1.5 if "q_proj" in name or "k_proj" in name else 1.0
    if name.endswith("per_layer_input_gate.weight"):
        gain = 0.125  # what it multiplies is not normed: where GELU closes all gates, the norm behind them divides noise by noise
    return round(math.log2(gain / (draw.DEVIATION * math.sqrt(shape[-1])))), 0


def stacked(names) -> list[str]:
    """The names with one tensor an expert, as save_pretrained may write, as those of the stacks that the class has."""
    one = re.compile(r"experts\.\d+\.(gate_proj|up_proj|down_proj|w1|w2|w3)\.weight$")
    granite = {"input_linear.weight": "experts.gate_up_proj", "output_linear.weight": "experts.down_proj",
               "router.layer.weight": "router.weight"}
    found = set()
    for name in names:
        for old, new in granite.items():
            name = name.replace("block_sparse_moe." + old, "block_sparse_moe." + new)
        found.add(one.sub(lambda m: "experts.down_proj" if m[1] in ("down_proj", "w2") else "experts.gate_up_proj", name))
    return sorted(found)


def drawn(model) -> dict[str, torch.Tensor]:
    """What a checkpoint holds: the parameters, and the buffers that are saved with them."""
    saved = model.state_dict().keys()
    return dict(model.named_parameters()) | {name: b for name, b in model.named_buffers() if name in saved}


def build(family: Family, keys: dict, dialect: str):
    """The class with drawn parameters, the config.json that the test will read, and the list of tensors."""
    cls = getattr(transformers, family.architecture)
    config = cls.config_class.from_dict(copy.deepcopy(keys))  # from_dict writes into nested ones
    config._attn_implementation = "eager"
    model = cls(config).eval()
    tensors = []
    with torch.no_grad():
        for name, parameter in sorted(drawn(model).items()):
            shape = list(parameter.shape)
            exponent, offset = parameter_rule(name, shape, family)
            parameter.copy_(torch.from_numpy(draw.tensor(SEED, name, shape, exponent, offset)))
            tensors.append({"name": name, "shape": shape, "exponent": exponent, "offset": offset})
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        with safe_open(f"{folder}/model.safetensors", "pt") as saved:
            if stacked(saved.keys()) != [t["name"] for t in tensors]:
                sys.exit(f"{family.name}: save_pretrained writes other names than named_parameters")
        written = json.loads(Path(f"{folder}/config.json").read_text())
    if dialect == "old":
        written = {"architectures": [family.architecture], "model_type": config.model_type, "torch_dtype": "float32"} | keys
    return model, written, tensors


@torch.no_grad()
def in_segments(model, ids: torch.Tensor, lengths: list[int]) -> np.ndarray:
    """Logits [T, vocabulary] of a forward per segment over one growing cache; the last segment is cut to fit."""
    cache = transformers.DynamicCache(config=model.config)
    rows, begin, turn = [], 0, 0
    while begin < len(ids):
        end = min(len(ids), begin + lengths[turn % len(lengths)])
        rows.append(model(ids[None, begin:end], past_key_values=cache, use_cache=True).logits[0])
        begin, turn = end, turn + 1
    return torch.cat(rows).numpy()


def relative(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.max(np.abs(a - b)) / np.max(np.abs(b)))


@torch.no_grad()
def least_effect(model, ids: torch.Tensor, logits: np.ndarray, tensors: list[dict]) -> tuple[float, str]:
    """The tensor whose loss (its offset in place of its values) moves the logits least, and by how much."""
    parameters = drawn(model)
    effects = []
    undone = f"model.layers.{model.config.num_hidden_layers - 1}.layer_scalar"  # by the last norm
    for t in tensors:
        if t["name"] == undone:
            continue
        kept = parameters[t["name"]].clone()
        parameters[t["name"]].fill_(t["offset"])
        effects.append((relative(model(ids[None]).logits[0].numpy(), logits), t["name"]))
        parameters[t["name"]].copy_(kept)
    return min(effects)


def make(family: Family, width: str, keys: dict, tokens: int, out: Path) -> None:
    name = f"{family.name}-{width}"
    model, config, tensors = build(family, keys, "old" if width == "odd" else "new")
    ids = torch.from_numpy(draw.ids(SEED, tokens, config["vocab_size"]))
    with torch.no_grad():
        logits = model(ids[None]).logits[0].numpy()
    half = tokens // 2
    deviation = {
        "prefill then single tokens": relative(in_segments(model, ids, [half] + [1] * (tokens - half)), logits),
        "uneven segments": relative(in_segments(model, ids, SEGMENTS), logits),
    }
    effect, weakest = least_effect(model, ids, logits, tensors)
    print(f"{name}: T {tokens}, max |logit| {np.max(np.abs(logits)):.3g}, {deviation}, least effect {effect:.3g} ({weakest})")
    if max(deviation.values()) > family.noise or effect < 1e-3:
        sys.exit(f"{name}: the ways disagree, or a parameter does not matter")
    metadata = {
        "family": family.name,
        "width": width,
        "config": json.dumps(config),
        "seed": str(SEED),
        "tensors": json.dumps(tensors, separators=(",", ":")),
        "segments": json.dumps(SEGMENTS),
        "deviation": json.dumps(deviation),
        "script": "tools/goldens/make.py",
        "transformers": transformers.__version__,
        "torch": torch.__version__.split("+")[0],
    }
    golden_file.save(out / f"{name}.safetensors", {"ids": ids.numpy(), "logits": logits}, metadata)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="families, separated by commas")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "tests" / "goldens")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", FutureWarning)
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)  # the same sums on every machine
    for family in FAMILIES:
        if arguments.only and family.name not in arguments.only.split(","):
            continue
        for width, (keys, tokens) in family.widths().items():
            make(family, width, keys, tokens, arguments.out)


if __name__ == "__main__":
    main()
