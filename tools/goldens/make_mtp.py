#!/usr/bin/env python3
"""Writes tests/goldens/mtp/<family>-<width>.safetensors: logits of the layer that predicts one token further, FP32, eager.

    python tools/goldens/make_mtp.py [--only qwen3_5] [--out tests/goldens/mtp]

transformers leaves that layer out, so it is put together here of the library's own decoder layer, norm and rotary table:
    u = fc [norm(embed(token t+1)), norm(hidden t)];  hidden' = norm(layer(u));  logits of token t+2 = head(hidden')
hidden t is what the model's body gives after its last norm. Row t of `logits` F32 [T, vocabulary] is that for t < T - 1.
The last row goes one further: hidden' of the row before is the hidden state, and that row's likeliest token the token.
The model is the one of make.py, its parameters and the layer's drawn in the same way; the metadata is that of make.py.
Before a file is written, the script checks that every tensor of the layer matters, and that rows do not see later ones.
"""

import argparse
import copy
import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers

import draw
import golden_file
from families import FAMILIES, Family
from make import SEED, SEGMENTS, build, parameter_rule, relative


class Mtp(torch.nn.Module):
    """Names as the published checkpoints have them, behind "mtp."."""

    def __init__(self, model):
        super().__init__()
        config = copy.deepcopy(model.config)
        config.layer_types = ["full_attention"]
        config.num_hidden_layers = 1
        size, eps = config.hidden_size, config.rms_norm_eps
        norm = type(model.model.norm)
        self.pre_fc_norm_embedding = norm(size, eps)
        self.pre_fc_norm_hidden = norm(size, eps)
        self.fc = torch.nn.Linear(2 * size, size, bias=False)
        self.layers = torch.nn.ModuleList([type(model.model.layers[0])(config, 0)])
        self.norm = norm(size, eps)

    def forward(self, model, tokens, hidden):
        """Rows [T, hidden] of the layer, after its norm."""
        x = torch.cat([self.pre_fc_norm_embedding(model.model.embed_tokens(tokens)), self.pre_fc_norm_hidden(hidden)], -1)
        x = self.fc(x)[None]
        rows = x.shape[1]
        turns = model.model.rotary_emb(x, torch.arange(rows)[None])
        mask = torch.full((rows, rows), float("-inf")).triu(1)[None, None]
        out = self.layers[0](x, position_embeddings=turns, attention_mask=mask)
        return self.norm(out[0] if isinstance(out, tuple) else out)[0]


@torch.no_grad()
def logits_of(model, mtp, ids) -> torch.Tensor:
    hidden = model.model(ids[None]).last_hidden_state[0]
    rows = mtp(model, ids[1:], hidden[:-1])
    first = model.lm_head(rows)
    # One further: the whole stream again, its last hidden state that of the layer.
    guess = first[-1].argmax()
    tokens = torch.cat([ids[1:], guess[None]])
    further = mtp(model, tokens, torch.cat([hidden[:-1], rows[-1:]]))
    return torch.cat([first, model.lm_head(further[-1:])])


def draw_layer(mtp, family: Family) -> list[dict]:
    tensors = []
    with torch.no_grad():
        for name, parameter in sorted(mtp.named_parameters(prefix="mtp")):
            shape = list(parameter.shape)
            exponent, offset = parameter_rule(name, shape, family.zero_centred)
            if "pre_fc_norm" in name:
                exponent, offset = -9, 0
            parameter.copy_(torch.from_numpy(draw.tensor(SEED, name, shape, exponent, offset)))
            tensors.append({"name": name, "shape": shape, "exponent": exponent, "offset": offset})
    return tensors


def least_effect(model, mtp, ids, logits, tensors) -> tuple[float, str]:
    """The tensor whose loss moves the logits least, and by how much."""
    parameters = dict(mtp.named_parameters(prefix="mtp"))
    effects = []
    for t in tensors:
        kept = parameters[t["name"]].data.clone()
        parameters[t["name"]].data.fill_(t["offset"])
        effects.append((relative(logits_of(model, mtp, ids).numpy(), logits), t["name"]))
        parameters[t["name"]].data.copy_(kept)
    return min(effects)


def make(family: Family, width: str, keys: dict, out: Path) -> None:
    name, tokens = f"{family.name}-{width}", 24
    model, config, tensors = build(family, keys, "old" if width == "odd" else "new")
    config["mtp_num_hidden_layers"] = 1
    mtp = Mtp(model).eval()
    own = draw_layer(mtp, family)
    ids = torch.from_numpy(draw.ids(SEED, tokens, config["vocab_size"]))
    logits = logits_of(model, mtp, ids).numpy()
    part = logits_of(model, mtp, ids[:9]).numpy()
    ahead = relative(part[:8], logits[:8])
    effect, weakest = least_effect(model, mtp, ids, logits, own)
    print(f"{name}: T {tokens}, max |logit| {np.max(np.abs(logits)):.3g}, of a prefix {ahead:.2g}, "
          f"least effect {effect:.3g} ({weakest})")
    if ahead > family.noise or effect < 1e-3:
        sys.exit(f"{name}: a row sees later ones, or a tensor does not matter")
    metadata = {
        "family": family.name,
        "width": width,
        "config": json.dumps(config),
        "seed": str(SEED),
        "tensors": json.dumps(tensors + own, separators=(",", ":")),
        "segments": json.dumps(SEGMENTS),
        "script": "tools/goldens/make_mtp.py",
        "transformers": transformers.__version__,
        "torch": torch.__version__.split("+")[0],
    }
    out.mkdir(parents=True, exist_ok=True)
    golden_file.save(out / f"{name}.safetensors", {"ids": ids.numpy(), "logits": logits}, metadata)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="qwen3_5,qwen3_5_moe", help="families, separated by commas")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "tests" / "goldens" / "mtp")
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)  # the same sums on every machine
    for family in FAMILIES:
        if family.name in arguments.only.split(","):
            for width, (keys, _) in family.widths().items():
                make(family, width, keys, arguments.out)


if __name__ == "__main__":
    main()
