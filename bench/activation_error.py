#!/usr/bin/env python3
"""What INT8 activations cost by themselves: KL divergence of a model with FP32 weights whose linear layers' inputs are quantised as
onw's CPU target does it (docs/arithmetic.md, "Quantise"), against the same model with FP32 activations, by group of inputs; and
what could make it less.

    bench/activation_error.py --model NAME=SOURCE --text FILE --calibration FILE [--windows 4] --out bench/results/activations-NAME.json

SOURCE is a Hugging Face folder or a GGUF file (dequantised), as transformers reads them. All rows of all windows of 512 tokens
count. The head's input is quantised too; keys, values and attention are FP32. "equalised" divides channels by powers of two, 2 to the
rounded log2 of (RMS / median RMS) ** strength of --calibration, which a converter could fold into norms, rows of up and rows of v; weights are
multiplied by the same, exactly. Needs torch and transformers.
"""
import argparse
import datetime
import json
import pathlib
import re
import sys

import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import machine  # noqa: E402

WINDOW = 512
NARROW = ("down_proj", "o_proj")


def load(source):
    folder, file = (source, {}) if source.is_dir() else (source.parent, {"gguf_file": source.name})
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **file).eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder, **file)


def windows(tokenizer, path, count):
    text = path.read_text(encoding="utf-8")
    for i in range(count):
        at = len(text) * i // count
        yield tokenizer(text[at:at + 8 * WINDOW], return_tensors="pt").input_ids[:, :WINDOW]


def group_for(inputs, most):
    return next(g for g in (128, 64, 32) if g <= most and inputs % g == 0)


def quantised(x, group, clips=(1.0,)):
    """x to INT8 codes and back; of several clips of the largest value the one with the least squared error in each group."""
    parts = x.unflatten(-1, (-1, group))
    amax = parts.abs().amax(-1, keepdim=True).clamp(min=2.0 ** -100)
    best, least = None, None
    for clip in clips:
        scale = amax * clip / 127
        values = (parts * (127 / (amax * clip))).round().clamp(-127, 127) * scale
        error = (values - parts).square().sum(-1, keepdim=True)
        better = error < least if best is not None else torch.ones_like(error, dtype=torch.bool)
        best = values if best is None else torch.where(better, values, best)
        least = error if least is None else torch.minimum(least, error)
    return best.flatten(-2)


class Quantiser:
    """Replaces the input of every linear layer by what its INT8 codes stand for."""

    def __init__(self, group, narrow=None, clips=(1.0,), shift=None):
        self.group, self.narrow, self.clips, self.shift = group, narrow or {}, clips, shift or {}

    def hook(self, name):
        kind = name.rsplit(".", 1)[-1]
        most = self.narrow.get(kind, self.group)
        factor = self.shift.get(name)

        def change(_, inputs):
            x = inputs[0]
            group = group_for(x.shape[-1], most)
            if factor is None:
                return (quantised(x, group, self.clips),)
            return (quantised(x / factor, group, self.clips) * factor,)
        return change


def linears(model):
    return [(name, m) for name, m in model.named_modules() if isinstance(m, torch.nn.Linear)]


def log_probabilities(model, texts):
    return [model(input_ids=ids, use_cache=False).logits[0].log_softmax(-1) for ids in texts]


def divergence(model, texts, base, quantiser):
    hooks = [m.register_forward_pre_hook(quantiser.hook(name)) for name, m in linears(model)]
    total, same, rows = 0.0, 0, 0
    for ids, theirs in zip(texts, base):
        ours = model(input_ids=ids, use_cache=False).logits[0].log_softmax(-1)
        total += (theirs.exp() * (theirs - ours)).sum().item()
        same += int((theirs.argmax(-1) == ours.argmax(-1)).sum())
        rows += len(theirs)
    for hook in hooks:
        hook.remove()
    return {"mean_kl": total / rows, "top1": same / rows}


def mean_squares(model, texts):
    sums = {}

    def add(name):
        def hook(_, inputs):
            sums[name] = sums.get(name, 0) + inputs[0].flatten(0, -2).square().mean(0)
        return hook

    hooks = [m.register_forward_pre_hook(add(name)) for name, m in linears(model)]
    for ids in texts:
        model(input_ids=ids, use_cache=False)
    for hook in hooks:
        hook.remove()
    return sums


def shifts(squares, config, strength, kinds):
    """Powers of two by channel. Heads that share a value head share its factors."""
    factors = {}
    for name, square in squares.items():
        if not re.search(kinds, name):
            continue
        if name.endswith("o_proj"):
            heads, kv = config.num_attention_heads, config.num_key_value_heads
            shared = square.view(kv, heads // kv, -1).mean(1, keepdim=True)
            square = shared.expand(kv, heads // kv, -1).reshape(-1)
        rms = square.sqrt()
        ratio = (rms / rms.median().clamp(min=1e-12)).clamp(min=1e-6)
        factors[name] = 2.0 ** (strength * ratio.log2()).round()
    return factors


def variants(squares, config):
    for group in (128, 64, 32):
        yield f"group {group}", Quantiser(group)
    yield "group 128, down at 64", Quantiser(128, {"down_proj": 64})
    yield "group 128, down at 32", Quantiser(128, {"down_proj": 32})
    yield "group 128, down and o at 32", Quantiser(128, {name: 32 for name in NARROW})
    yield "group 128, scale of least squared error (6 clips)", Quantiser(128, clips=(1.0, 0.95, 0.9, 0.8, 0.7, 0.6))
    inner = r"[qkv]_proj|gate_proj|up_proj"
    for strength in (0.5, 1.0):
        yield f"group 128, equalised behind norms, strength {strength}", Quantiser(128, shift=shifts(squares, config, strength, inner))
        yield f"group 128, equalised everywhere, strength {strength}", Quantiser(128, shift=shifts(squares, config, strength, "_proj"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, metavar="NAME=SOURCE")
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--calibration", type=pathlib.Path, required=True)
    parser.add_argument("--windows", type=int, default=4)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    name, _, source = options.model.partition("=")
    model, tokenizer = load(pathlib.Path(source))
    results = {"machine": machine.card(), "date": datetime.date.today().isoformat(), "model": name, "runs": []}
    with torch.no_grad():
        texts = list(windows(tokenizer, options.text, options.windows))
        base = log_probabilities(model, texts)
        squares = mean_squares(model, windows(tokenizer, options.calibration, options.windows))
        for label, quantiser in variants(squares, model.config):
            results["runs"].append({"activations": label} | divergence(model, texts, base, quantiser))
            print(f"{name}, {label}: KL {results['runs'][-1]['mean_kl']:.5f}, same first choice "
                  f"{100 * results['runs'][-1]['top1']:.1f} %", flush=True)
            options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
