#!/usr/bin/env python3
"""What a model that tools/train_hybrids.py trained has learnt: loss, routers, drafts of its MTP layer; and whether onw computes it.

    bench/hybrids.py run FOLDER --out bench/results/hybrid-NAME.json [--rows 64] [--onw build/release/onw] [--recordings DIR]
    bench/hybrids.py table bench/results/hybrid-*.json

All on FOLDER/held_out.txt, in rows of 256 tokens spread evenly over it, in FP32. Routers: by layer, how even the load is (entropy over
log of the number of experts; 1: every expert as often), the share of the busiest expert and of the busiest quarter, how decided a token's
router is (entropy of its own distribution, likewise), how many of a token's experts the token before it had chosen, and how many experts a block
of 16 tokens needs; beside the same figures of the same shape as it was before training, whose router chooses by chance.

Drafts (the model with an MTP layer): behind a text the model draws its greedy token; the layer guesses up to three more, fed with
its own guesses; the model says what it would have drawn, and guesses count up to the first wrong one. `real text`: behind 64, 112, 160 and 208
tokens of the rows. `own text`: behind the model's own greedy answers to 64 tokens, which repeat themselves, so more is right there.
`first_right` is the first guess alone, `right_after` guess n where those before it were right, `tokens_a_step` the model's own token
and the right guesses.

--onw converts the folder without quantising and compares `onw eval` on the reference with torch: every logit of the first 1,024 tokens, and
perplexity. --recordings keeps the token ids of the model's own greedy answers, the first 64 of each being the prompt, for
`onw bench --replay FILE --depth 64`. Needs torch and transformers.
"""
import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tools")]
import machine  # noqa: E402

DEPTH = 3
CUTS = (64, 112, 160, 208)
PROMPT, CONTINUED, APART = 64, 128, 16
BLOCK = 16
UNFINISHED = {"shape": "a checkpoint", "tokens": 0}


def rows_of(folder, count):
    """[rows, 256] of the held-out text."""
    import tokenizers
    import torch
    from small_training import held_out_rows, token_ids
    from train_hybrids import ROW_TOKENS
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    return torch.cat(held_out_rows(token_ids(tokenizer, folder / "held_out.txt"), ROW_TOKENS, count))


def losses(body, mtp, rows):
    """Mean loss a token of the body, and of the layer's guess of the token after the next, given the true next one."""
    from small_training import next_token_loss
    sums = [0.0, 0.0]
    for ids in rows.split(8):
        hidden = body.model(input_ids=ids, use_cache=False).last_hidden_state
        sums[0] += len(ids) * next_token_loss(body.lm_head(hidden), ids).item()
        if mtp is not None:
            sums[1] += len(ids) * next_token_loss(body.lm_head(mtp(hidden[:, :-1], ids[:, 1:])), ids, ahead=2).item()
    loss, ahead = (s / len(rows) for s in sums)
    found = {"rows": len(rows), "tokens": rows.numel(), "loss": round(loss, 4), "perplexity": round(math.exp(loss), 3)}
    return found | ({"mtp_loss": round(ahead, 4), "mtp_perplexity": round(math.exp(ahead), 3)} if mtp is not None else {})


def entropy(shares):
    """Over the last dimension, in units of the logarithm of its length."""
    import torch
    return -(shares * torch.log(shares.clamp(min=1e-30))).sum(-1) / math.log(shares.shape[-1])


def router_figures(chosen, shares):
    """chosen [rows, tokens, k] ids, shares [rows, tokens, experts] the router's distribution."""
    import torch
    experts, k = shares.shape[-1], chosen.shape[-1]
    hot = torch.zeros(shares.shape).scatter_(-1, chosen, 1.0)
    load = hot.mean((0, 1)) / k
    blocks = hot[:, :hot.shape[1] // BLOCK * BLOCK].unflatten(1, (-1, BLOCK)).amax(2).sum(-1)
    figures = {"load_entropy": entropy(load), "busiest": load.max(), "busiest_quarter": load.topk(max(1, experts // 4)).values.sum(),
               "least_busy": load.min(), "token_entropy": entropy(shares).mean(),
               "kept_from_token_before": (hot[:, 1:] * hot[:, :-1]).sum(-1).mean() / k, f"experts_of_{BLOCK}_tokens": blocks.mean()}
    return {name: round(float(value), 4) for name, value in figures.items()}


def routers(body, rows):
    """The figures of each layer of experts, and their means."""
    import torch
    from train_hybrids import Choices
    choices = Choices(body)
    sigmoid = body.config.model_type.startswith("lfm2")
    layers = []
    for ids in rows.split(8):
        body.model(input_ids=ids, use_cache=False)
        for i, (logits, chosen) in enumerate(choices.take()):
            weight = torch.sigmoid(logits.float()) if sigmoid else torch.softmax(logits.float(), -1)
            part = chosen.unflatten(0, ids.shape), (weight / weight.sum(-1, keepdim=True)).unflatten(0, ids.shape)
            layers.append([]) if i == len(layers) else None
            layers[i].append(part)
    figures = [router_figures(torch.cat([c for c, _ in parts]), torch.cat([s for _, s in parts])) for parts in layers]
    mean = {name: round(sum(f[name] for f in figures) / len(figures), 4) for name in figures[0]}
    return {"experts": body.config.num_experts, "chosen": body.config.num_experts_per_tok, "mean": mean, "layers": figures}


def untrained(folder):
    """The body of the same shape and seed before its first step."""
    import torch
    from train_hybrids import Hybrid
    told = json.loads((folder / "training.json").read_text())
    torch.manual_seed(told["seed"])
    return Hybrid(told["shape"]).body.eval()


def right_guesses(body, mtp, prefix):
    """How many of DEPTH guesses are right behind each row of prefix [rows, tokens]."""
    import torch
    hidden = body.model(input_ids=prefix, use_cache=False).last_hidden_state
    known = torch.cat([prefix, body.lm_head(hidden[:, -1:]).argmax(-1)], dim=1)
    for _ in range(DEPTH):
        ahead = mtp(hidden, known[:, 1:])
        known = torch.cat([known, body.lm_head(ahead[:, -1:]).argmax(-1)], dim=1)
        hidden = torch.cat([hidden, ahead[:, -1:]], dim=1)
    drawn = body.lm_head(body.model(input_ids=known[:, :-1], use_cache=False).last_hidden_state[:, -DEPTH:]).argmax(-1)
    return (drawn == known[:, -DEPTH:]).int().cumprod(-1).sum(-1)


def draft_figures(right):
    """right: the number of right guesses, 0 to DEPTH, of every place."""
    import torch
    reached = [int((right >= n).sum()) for n in range(DEPTH + 1)]
    after = [round(reached[n + 1] / reached[n], 4) if reached[n] else None for n in range(DEPTH)]
    a_step = [round(1 + float(torch.clamp(right, max=n).float().mean()), 4) for n in range(1, DEPTH + 1)]
    return {"places": len(right), "first_right": after[0], "right_after": after, "tokens_a_step": a_step}


def own_text(body, rows):
    """[rows, PROMPT + CONTINUED]: the beginning of each row and the body's greedy answer to it."""
    import torch
    ids = rows[:, :PROMPT]
    out = body.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=CONTINUED, min_new_tokens=CONTINUED,
                        do_sample=False)
    return out[:, :PROMPT + CONTINUED]


def drafts(body, mtp, rows, recordings):
    import torch
    real = torch.cat([right_guesses(body, mtp, part[:, :cut]) for part in rows.split(16) for cut in CUTS])
    own = own_text(body, rows[:16])
    if recordings is not None:
        recordings.mkdir(parents=True, exist_ok=True)
        for i, ids in enumerate(own.tolist()):
            (recordings / f"own-{i:02}.txt").write_text(" ".join(map(str, ids)) + "\n")
    places = range(PROMPT, PROMPT + CONTINUED - DEPTH, APART)
    return {"real text": draft_figures(real),
            "own text": draft_figures(torch.cat([right_guesses(body, mtp, own[:, :at]) for at in places]))}


def call(onw, *words):
    done = subprocess.run([str(onw), *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"onw {words[0]}: {done.stderr.strip()}")
    return done.stdout


def compare(onw, folder, body, rows):
    """onw's reference in FP32 beside torch: the largest difference of a logit, and both perplexities, of one row of the text."""
    import torch
    from safetensors.torch import load_file
    from small_training import next_token_loss
    ids = rows[:4].reshape(1, -1)
    theirs = body(input_ids=ids, use_cache=False).logits[0]
    with tempfile.TemporaryDirectory() as temporary:
        out = pathlib.Path(temporary)
        call(onw, "convert", folder, out / "model", "--format", "f32")
        (out / "ids").write_text(" ".join(map(str, ids[0].tolist())))
        told = json.loads(call(onw, "eval", out / "model", "--ids", out / "ids", "--device", "reference", "--kv", "f32",
                               "--save-logits", out / "logits.safetensors", "--json"))
        ours = load_file(out / "logits.safetensors")["logits"]
    loss = [next_token_loss(x[None], ids).item() for x in (theirs, ours)]
    return {"tokens": ids.numel(), "largest_difference": float((ours - theirs).abs().max()), "largest_logit": float(theirs.abs().max()),
            "same_first_choice": float((ours.argmax(-1) == theirs.argmax(-1)).float().mean()),
            "perplexity_torch": math.exp(loss[0]), "perplexity_onw": math.exp(loss[1]), "perplexity_onw_eval": told["perplexity"]}


def run(options):
    import torch
    import transformers
    from train_hybrids import load
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    body, mtp = load(options.folder)
    rows = rows_of(options.folder, options.rows)[:options.rows]
    told = options.folder / "training.json"
    report = {"what": "a small model trained on real text", "machine": machine.card(), "torch": torch.__version__,
              "transformers": transformers.__version__, "training": json.loads(told.read_text()) if told.exists() else None,
              "held_out": losses(body, mtp, rows), "routers": {"trained": routers(body, rows)}}
    if report["training"]:
        report["routers"]["before training"] = routers(untrained(options.folder), rows)
    if mtp is not None:
        report["drafts"] = drafts(body, mtp, rows, options.recordings)
    if options.onw:
        report["onw"] = compare(options.onw, options.folder, body, rows)
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    table([report])


def table(reports):
    print("| model | tokens trained | held-out perplexity | load entropy | busiest, busiest quarter | token's entropy | kept from token before | "
          "experts of 16 tokens |\n|---|---:|---:|---:|---|---:|---:|---:|")
    for report in reports:
        told = report["training"] or UNFINISHED
        for name, kind in report["routers"].items():
            m = kind["mean"]
            trained = name == "trained"
            print(f"| {told['shape']}, {name} | {told['tokens'] if trained else 0} | "
                  f"{report['held_out']['perplexity'] if trained else ''} | {m['load_entropy']:.3f} | {100 * m['busiest']:.1f} %, "
                  f"{100 * m['busiest_quarter']:.1f} % | {m['token_entropy']:.3f} | {100 * m['kept_from_token_before']:.0f} % | "
                  f"{m['experts_of_16_tokens']:.1f} of {kind['experts']} |")
    print("\n| model | drafts on | first right | second, third right after it | tokens a step with 1, 2, 3 guesses |\n|---|---|---:|---|---|")
    for report in reports:
        told = report["training"] or UNFINISHED
        for name, f in report.get("drafts", {}).items():
            after = ", ".join("none" if a is None else f"{100 * a:.1f} %" for a in f["right_after"][1:])
            print(f"| {told['shape']} | {name} ({f['places']} places) | {100 * f['first_right']:.1f} % | {after} | "
                  f"{', '.join(f'{x:.2f}' for x in f['tokens_a_step'])} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("run")
    one.add_argument("folder", type=pathlib.Path)
    one.add_argument("--out", type=pathlib.Path, required=True)
    one.add_argument("--rows", type=int, default=64)
    one.add_argument("--threads", type=int, default=os.cpu_count())
    one.add_argument("--onw", type=pathlib.Path)
    one.add_argument("--recordings", type=pathlib.Path)
    one.set_defaults(act=run)
    two = commands.add_parser("table")
    two.add_argument("files", type=pathlib.Path, nargs="+")
    two.set_defaults(act=lambda options: table([json.loads(f.read_text()) for f in options.files]))
    options = parser.parse_args()
    options.act(options)


if __name__ == "__main__":
    main()
