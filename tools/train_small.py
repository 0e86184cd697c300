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
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch
import transformers
from tokenizers import ByteLevelBPETokenizer

VOCABULARY = 8192
END = "<|endoftext|>"  # id 0; between books, never asked for
ROW_TOKENS = 512
BATCH_ROWS = 4
WARM_UP_STEPS = 60
FALL = 0.2  # of the training, at its end
BETAS, WEIGHT_DECAY, CLIP = (0.9, 0.95), 0.1, 1.0
REPORT_SECONDS = 10

# Widths are multiples of 256, so that every format and group applies.
SHAPES = {
    "llama-23m": dict(config="LlamaConfig", learning_rate=1.5e-3, hidden_size=512, intermediate_size=1536, num_hidden_layers=6,
                      num_attention_heads=8, num_key_value_heads=4, head_dim=64, rms_norm_eps=1e-5, rope_theta=10000.0,
                      tie_word_embeddings=True),
    "llama-tiny": dict(config="LlamaConfig", learning_rate=3e-3, hidden_size=256, intermediate_size=512, num_hidden_layers=2,
                       num_attention_heads=4, num_key_value_heads=2, head_dim=64, rms_norm_eps=1e-5, rope_theta=10000.0,
                       tie_word_embeddings=True),
}


def say(line):
    print(line, file=sys.stderr, flush=True)


def make_tokenizer(text, folder):
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train(str(text), vocab_size=VOCABULARY, special_tokens=[END], show_progress=False)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer, eos_token=END, bos_token=END)
    fast.save_pretrained(folder)
    return tokenizer


def token_ids(tokenizer, path):
    """All ids of a text; books (divided by an empty line) with END between them."""
    ids = []
    for book in path.read_text(encoding="utf-8").split("\n\n"):
        ids += tokenizer.encode(book).ids + [0]
    return np.array(ids, dtype=np.int32)


def make_model(shape):
    values = dict(SHAPES[shape])
    config_class = getattr(transformers, values.pop("config"))
    rate = values.pop("learning_rate")
    config = config_class(vocab_size=VOCABULARY, max_position_embeddings=ROW_TOKENS, bos_token_id=0, eos_token_id=0, **values)
    return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32), rate


class Rows:
    """Rows of ROW_TOKENS ids at random places, each place once an epoch."""

    def __init__(self, ids, seed):
        self.ids, self.random, self.order = ids, np.random.default_rng(seed), np.array([], dtype=np.int64)

    def batch(self):
        while len(self.order) < BATCH_ROWS:
            starts = np.arange(self.random.integers(ROW_TOKENS), len(self.ids) - ROW_TOKENS, ROW_TOKENS)
            self.order = np.concatenate([self.order, self.random.permutation(starts)])
        starts, self.order = self.order[:BATCH_ROWS], self.order[BATCH_ROWS:]
        return torch.from_numpy(np.stack([self.ids[s:s + ROW_TOKENS] for s in starts]).astype(np.int64))


def loss_of(model, ids):
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
    return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())


def held_out_loss(model, ids, rows=64):
    model.eval()
    whole = torch.from_numpy(ids[:len(ids) // ROW_TOKENS * ROW_TOKENS].astype(np.int64)).view(-1, ROW_TOKENS)
    with torch.no_grad():
        losses = [loss_of(model, row[None]).item() for row in whole[:: max(1, len(whole) // rows)]]
    return sum(losses) / len(losses)


def optimiser(model, rate):
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}],
                             lr=rate, betas=BETAS, fused=True)


class Schedule:
    """How much is done (0 to 1), by steps or by the processor's time, and the rate that belongs to it."""

    def __init__(self, options):
        self.steps, self.seconds = options.steps, 60 * options.minutes * torch.get_num_threads()
        self.began, self.step, self.end = time.process_time(), 0, 1.0
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self.hurry())

    def share(self):
        return self.step / self.steps if self.steps else (time.process_time() - self.began) / self.seconds

    def hurry(self):
        self.end = min(self.end, self.share() / (1 - FALL))
        say("interrupted: the rate falls from here")

    def done(self):
        return self.share() / self.end

    def rate(self):
        return min(1.0, (self.step + 1) / WARM_UP_STEPS, max(0.0, 1 - self.done()) / FALL)


def train(model, rate, rows, options):
    optimise, schedule = optimiser(model, rate), Schedule(options)
    began, told, smooth = time.monotonic(), 0.0, None
    model.train()
    while schedule.done() < 1:
        for group in optimise.param_groups:
            group["lr"] = rate * schedule.rate()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model, rows.batch())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimise.step()
        optimise.zero_grad(set_to_none=True)
        schedule.step += 1
        smooth = loss.item() if smooth is None else 0.95 * smooth + 0.05 * loss.item()
        if time.monotonic() - told >= REPORT_SECONDS:
            told = time.monotonic()
            speed = schedule.step * BATCH_ROWS * ROW_TOKENS / (told - began)
            say(f"step {schedule.step}, {100 * schedule.done():.0f} %: loss {smooth:.3f}, {speed:.0f} tokens/s")
    return schedule.step


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

    tokenizer = make_tokenizer(options.text / "train.txt", options.out)
    ids = token_ids(tokenizer, options.text / "train.txt")
    held_out = token_ids(tokenizer, options.text / "held_out.txt")
    model, rate = make_model(options.shape)
    say(f"{options.shape}: {sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters, {len(ids) / 1e6:.2f} M tokens")

    steps = train(model, rate, Rows(ids, options.seed), options)
    loss = held_out_loss(model, held_out)
    model.save_pretrained(options.out)
    shutil.copy(options.text / "held_out.txt", options.out / "held_out.txt")
    summary = {"shape": options.shape, "seed": options.seed, "steps": steps, "tokens": steps * BATCH_ROWS * ROW_TOKENS,
               "held_out_loss": loss, "held_out_perplexity": math.exp(loss), "torch": torch.__version__}
    (options.out / "training.json").write_text(json.dumps(summary, indent=1) + "\n")
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
