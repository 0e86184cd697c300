#!/usr/bin/env python3
"""Trains a small model whose true FP32 weights are at hand, so that what a weight format costs can be measured.

    tools/train_small.py TEXT OUT [--shape llama-23m] [--minutes 25 | --steps N] [--seed 1]

TEXT is a folder with train.txt and held_out.txt (tools/book_text.py makes one). OUT becomes a Hugging Face folder: FP32
safetensors, config, a byte-level BPE tokenizer of its own (8,192 tokens, the words split as GPT-2 splits them), and
held_out.txt beside them. One line of progress every few seconds on stderr, and at the end the loss on the held-out text.

With --steps and one number of threads the weights are those of the seed; --minutes takes as many steps as fit and prints how
many; it counts the processor's time by thread, so that other work on the machine costs no training. OMP_WAIT_POLICY=passive
helps where there is such work. The rate is constant and falls to nothing over the last fifth; an interrupt (Ctrl-C, SIGTERM)
starts that fall at once. Needs torch, transformers, tokenizers and numpy. Matrix products run in bfloat16, weights and optimiser in FP32.
A shape is a configuration of transformers: another architecture is one more entry of SHAPES.
"""
import argparse
import json
import math
import shutil
from pathlib import Path

import torch
import transformers

from small_training import Job, Rows, held_out_loss, make_tokenizer, row_loss, say, token_ids, train

VOCABULARY = 8192
ROW_TOKENS = 512
BATCH_ROWS = 4

# Widths are multiples of 256, so that every format and group applies.
SHAPES = {
    "llama-23m": dict(config="LlamaConfig", learning_rate=1.5e-3, hidden_size=512, intermediate_size=1536, num_hidden_layers=6,
                      num_attention_heads=8, num_key_value_heads=4, head_dim=64, rms_norm_eps=1e-5, rope_theta=10000.0,
                      tie_word_embeddings=True),
    "llama-tiny": dict(config="LlamaConfig", learning_rate=3e-3, hidden_size=256, intermediate_size=512, num_hidden_layers=2,
                       num_attention_heads=4, num_key_value_heads=2, head_dim=64, rms_norm_eps=1e-5, rope_theta=10000.0,
                       tie_word_embeddings=True),
}


def make_model(shape):
    values = dict(SHAPES[shape])
    config_class = getattr(transformers, values.pop("config"))
    rate = values.pop("learning_rate")
    config = config_class(vocab_size=VOCABULARY, max_position_embeddings=ROW_TOKENS, bos_token_id=0, eos_token_id=0, **values)
    return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32), rate


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="llama-23m")
    parser.add_argument("--minutes", type=float, default=25)
    parser.add_argument("--steps", type=int, help="instead of --minutes")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    options.out.mkdir(parents=True, exist_ok=True)

    tokenizer = make_tokenizer(options.text / "train.txt", options.out, VOCABULARY)
    ids = token_ids(tokenizer, options.text / "train.txt")
    held_out = token_ids(tokenizer, options.text / "held_out.txt")
    model, rate = make_model(options.shape)
    say(f"{options.shape}: {sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters, {len(ids) / 1e6:.2f} M tokens")

    steps = train(Job(torch.nn.ModuleList([model]), lambda ids: {"loss": (1.0, row_loss(model, ids))},
                      Rows(ids, options.seed, BATCH_ROWS, ROW_TOKENS), rate, options.steps, options.minutes))
    loss = held_out_loss(model, held_out, ROW_TOKENS)
    model.save_pretrained(options.out)
    shutil.copy(options.text / "held_out.txt", options.out / "held_out.txt")
    summary = {"shape": options.shape, "seed": options.seed, "steps": steps, "tokens": steps * BATCH_ROWS * ROW_TOKENS,
               "held_out_loss": loss, "held_out_perplexity": math.exp(loss), "torch": torch.__version__}
    (options.out / "training.json").write_text(json.dumps(summary, indent=1) + "\n")
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
