#!/usr/bin/env python3
"""Measures how large the activations are that each weight multiplies, for `onw convert --importance`.

    tools/importance.py SOURCE TEXT OUT.safetensors [--windows 8]

SOURCE is a Hugging Face folder or a GGUF file, as transformers reads them; TEXT is read in evenly spread windows of 512 tokens. Take
a text that the model was made for, and not one on which it is measured. OUT holds, for every weight matrix by onw's name, the mean
square of each input. Needs torch and transformers. Families whose projections have the names of llama (qwen, gemma, granite).
"""
import argparse
import pathlib
import re

import torch
import transformers
from safetensors.torch import save_file

WINDOW = 512
OURS = {"self_attn.q_proj": "attn.q", "self_attn.k_proj": "attn.k", "self_attn.v_proj": "attn.v", "self_attn.o_proj": "attn.o",
        "mlp.gate_proj": "mlp.gate", "mlp.up_proj": "mlp.up", "mlp.down_proj": "mlp.down"}


def load(source):
    folder, file = (source, {}) if source.is_dir() else (source.parent, {"gguf_file": source.name})
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **file).eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder, **file)


def windows(tokenizer, text, count):
    for i in range(count):
        at = len(text) * i // count
        yield tokenizer(text[at:at + 8 * WINDOW], return_tensors="pt").input_ids[:, :WINDOW]


def our_name(name):
    found = re.search(r"layers\.(\d+)\.(.+)$", name)
    return f"layers.{found[1]}.{OURS[found[2]]}" if found and found[2] in OURS else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--windows", type=int, default=8)
    options = parser.parse_args()
    model, tokenizer = load(options.source)
    sums = {}

    def add(name):
        def hook(_, inputs):
            squares = inputs[0].detach().float().flatten(0, -2).pow(2).mean(0)
            sums[name] = sums.get(name, 0) + squares / options.windows
        return hook

    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and our_name(name):
            module.register_forward_pre_hook(add(our_name(name)))
    with torch.no_grad():
        for ids in windows(tokenizer, options.text.read_text(encoding="utf-8"), options.windows):
            model(input_ids=ids, use_cache=False)
    save_file({name: values.contiguous() for name, values in sums.items()}, options.out)


if __name__ == "__main__":
    main()
