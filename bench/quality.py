#!/usr/bin/env python3
"""What weight formats cost: KL divergence and agreement of the first choice, of onw and of llama.cpp, against the same FP32 model.

    bench/quality.py run --model NAME=SOURCE --text FILE --llama DIR --out bench/results/quality-NAME.json
    bench/quality.py table bench/results/quality-*.json

SOURCE is a Hugging Face folder of a llama model (tools/train_small.py) or a GGUF file. A GGUF file is dequantised first, and that is
the FP32 model: what its own quantisation lost is not seen. DIR holds llama-quantize and llama-perplexity.

Everything is measured on the same tokens: excerpts of FILE, cut into windows of 512 by llama-perplexity, whose second halves
count (it scores no others). The reference is llama.cpp's FP32 model with FP32 caches, stored by --kl-divergence-base;
llama.cpp's formats are compared with it by llama-perplexity itself, onw's by the same formula from `onw eval --save-logits`. Caches
are F16 on both sides, unless --kv says otherwise for onw; heads are what each engine makes of them. Activations are quantised as
each engine does it (INT8). Needs numpy, gguf and, for a folder, safetensors.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import time

try:
    import numpy as np
except ModuleNotFoundError:  # tables are printed without it
    np = None

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import machine  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
FORMATS = ["q4g128", "q4sg128", "q4g64", "q4sg64", "q4g32", "q4g32m", "iq4g32", "nf4c", "q4c", "u2g128", "q8c", "q8g32", "f32"]
PEER_FORMATS = ["Q4_0", "Q4_1", "Q4_K_M", "Q8_0"]
WINDOW = 512
EXCERPT_BYTES = 2600  # somewhat more than a window of most tokenizers
LEAST_COUNTED = -16  # log-probabilities are not stored below some such value, and llama-perplexity leaves them out too


def call(*command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout + done.stderr


def excerpts(text, windows):
    """Evenly spread pieces that begin with a line, enough for `windows` windows."""
    count = 2 * windows  # more than enough where a token is less than 5 bytes; llama-perplexity takes the first windows
    pieces = []
    for i in range(count):
        at = len(text) * i // count
        at = text.find("\n", at) + 1 if at else 0
        pieces.append(text[at:at + min(EXCERPT_BYTES, len(text) // count)].rsplit("\n", 1)[0])
    return "\n".join(pieces)


class Base:
    """A file of llama-perplexity --kl-divergence-base: "_logits_", window, vocabulary, windows, tokens, and for the scored rows of
    every window a scale and a least value (FP32) and 16-bit codes of the log-probabilities."""

    def __init__(self, path):
        with open(path, "rb") as file:
            magic = file.read(8)
            self.window, self.vocabulary, self.windows = struct.unpack("<Iii", file.read(12))
            assert magic == b"_logits_" and self.window == WINDOW, path
            self.tokens = np.fromfile(file, "<i4", self.window * self.windows).reshape(self.windows, self.window)
            at = file.tell()
        width = 2 * ((self.vocabulary + 1) // 2) + 4
        self.scored = range(self.window // 2, self.window - 1)
        self.rows = np.memmap(path, "<u2", "r", at, (self.windows, len(self.scored), width))

    def log_probabilities(self, window):
        rows = np.asarray(self.rows[window])
        head = rows[:, :4].copy().view("<f4").astype(np.float64)
        return head[:, :1] * rows[:, 4:4 + self.vocabulary] + head[:, 1:]


def compare(base, logits_file, ids):
    """Mean KL(base || ours), agreement and perplexity over the scored rows; logits as `onw eval --save-logits` writes them."""
    with open(logits_file, "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(length))
    begin = 8 + length + header["logits"]["data_offsets"][0]
    shape = tuple(header["logits"]["shape"])
    assert shape == (base.windows * base.window, base.vocabulary), shape
    logits = np.memmap(logits_file, "<f4", "r", begin, shape)
    divergence, same, nll = [], 0, 0.0
    for window in range(base.windows):
        theirs = base.log_probabilities(window)
        first = window * base.window
        ours = logits[first + base.scored.start:first + base.scored.stop].astype(np.float64)
        ours -= ours.max(1, keepdims=True)
        ours -= np.log(np.exp(ours).sum(1, keepdims=True))
        counted = np.where(theirs > LEAST_COUNTED, np.exp(theirs), 0)
        divergence.append((counted * (theirs - ours)).sum(1))
        same += int((theirs.argmax(1) == ours.argmax(1)).sum())
        following = ids[window, base.scored.start + 1:base.scored.stop + 1]
        nll -= float(ours[np.arange(len(following)), following].sum())
    divergence = np.concatenate(divergence)
    return {"mean_kl": float(divergence.mean()), "kl_error": float(divergence.std() / np.sqrt(len(divergence))),
            "top1": same / len(divergence), "perplexity": float(np.exp(nll / len(divergence)))}


def measure_onw(options, source, format_name, base, ids, work):
    folder, logits = work / "model", work / "logits.safetensors"
    began = time.monotonic()
    extra = ["--importance", options.importance] if options.importance else []
    call(options.onw, "convert", source, folder, "--format", format_name, "--replace", *extra)
    seconds = time.monotonic() - began
    ids_file = work / "ids.txt"
    ids_file.write_text(" ".join(map(str, ids.flatten())))
    call(options.onw, "eval", folder, "--ids", ids_file, "--context", WINDOW, "--kv", options.kv, "--save-logits", logits)
    found = compare(base, logits, ids)
    logits.unlink()
    weights = json.loads((folder / "engine.json").read_text())["weights"]
    return found | {"convert_s": round(seconds, 1), "bytes": (folder / "weights.safetensors").stat().st_size,
                    "formats": sorted({w["format"] for w in weights.values()})}


def number(text, name):
    return float(re.search(rf"^{re.escape(name)}\s*:\s*([-0-9.e]+)", text, re.M)[1])


def measure_llama(options, source, format_name, base_file, text_file, work):
    file = work / f"{format_name}.gguf"
    began = time.monotonic()
    call(options.llama / "llama-quantize", source, file, format_name, options.threads)
    seconds = time.monotonic() - began
    said = perplexity(options, file, text_file, base_file, "--kl-divergence")
    size = file.stat().st_size
    file.unlink()
    return {"mean_kl": number(said, "Mean    KLD"), "top1": number(said, "Same top p") / 100,
            "perplexity": number(said, "Mean PPL(Q)"), "convert_s": round(seconds, 1), "bytes": size}


def perplexity(options, model, text_file, base_file, *more):
    return call(options.llama / "llama-perplexity", "-m", model, "-f", text_file, "-c", WINDOW, "--chunks", options.windows, "-t",
                options.threads, "--kl-divergence-base", base_file, *more)


def reference(options, source, work):
    """The FP32 model as GGUF, what it says about the text, the tokens of the windows."""
    import llama_gguf  # it needs gguf, which tables do not

    model = work / "f32.gguf"
    if source.is_dir():
        llama_gguf.write(source, model)
    else:
        call(options.llama / "llama-quantize", "--allow-requantize", source, model, "F32", options.threads)
    text_file, base_file = work / "text.txt", work / "base.dat"
    text_file.write_text(excerpts(options.text.read_text(encoding="utf-8"), options.windows), encoding="utf-8")
    perplexity(options, model, text_file, base_file, "-ctk", "f32", "-ctv", "f32", "-fa", "off")
    base = Base(base_file)
    ids = base.tokens.copy()
    bos = llama_gguf.added_bos(model)
    if bos is not None:
        ids[:, 0] = bos  # as llama-perplexity does for every window
    return model, text_file, base_file, base, ids


def run(options):
    if np is None:
        raise SystemExit("numpy is not installed: pip install numpy gguf safetensors")
    name, _, source = options.model.partition("=")
    source = pathlib.Path(source)
    results = {"machine": machine.card(), "date": datetime.date.today().isoformat(), "model": name,
               "base": "FP32 weights" if source.is_dir() else "the dequantised GGUF file", "kv": options.kv,
               "runs": []}
    if options.out.exists() and not options.fresh:
        results = json.loads(options.out.read_text())
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        work = pathlib.Path(folder)
        model, text_file, base_file, base, ids = reference(options, source, work)
        results["positions"] = base.windows * len(base.scored)
        tasks = [("onw" + options.label, f, lambda f=f: measure_onw(options, source if source.is_dir() else model, f, base, ids, work))
                 for f in options.formats]
        tasks += [("llama.cpp", f, lambda f=f: measure_llama(options, model, f, base_file, text_file, work))
                  for f in options.peer_formats]
        for engine, format_name, measure in tasks:
            found = {"engine": engine, "format": format_name} | measure()
            results["runs"] = [r for r in results["runs"] if (r["engine"], r["format"]) != (engine, format_name)] + [found]
            options.out.write_text(json.dumps(results, indent=1) + "\n")
            print(f"{name} {engine} {format_name}: KL {found['mean_kl']:.5f}, same first choice {100 * found['top1']:.1f} %, "
                  f"perplexity {found['perplexity']:.3f}", flush=True)


def table(options):
    for path in options.results:
        results = json.loads(path.read_text())
        print(f"{results['model']}: against {results['base']}, {results['positions']} positions, caches {results['kv'].upper()}\n")
        print("| engine | format | MB | mean KL | same first choice | perplexity |\n|---|---|---:|---:|---:|---:|")
        for r in sorted(results["runs"], key=lambda r: r["mean_kl"]):
            print(f"| {r['engine']} | {r['format']} | {r['bytes'] / 1e6:.1f} | {max(0.0, r['mean_kl']):.2e} | {100 * r['top1']:.1f} % "
                  f"| {r['perplexity']:.3f} |")
        print()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("run", help="measure, and add to --out")
    one.add_argument("--onw", default=ROOT / "build" / "release" / "onw")
    one.add_argument("--model", required=True, metavar="NAME=SOURCE")
    one.add_argument("--text", type=pathlib.Path, required=True)
    one.add_argument("--llama", type=pathlib.Path, required=True, metavar="DIR")
    one.add_argument("--formats", nargs="*", default=FORMATS)
    one.add_argument("--peer-formats", nargs="*", default=PEER_FORMATS)
    one.add_argument("--windows", type=int, default=8)
    one.add_argument("--kv", default="f16")
    one.add_argument("--importance", help="of onw convert")
    one.add_argument("--label", default="", help="added to the engine's name")
    one.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    one.add_argument("--work", type=pathlib.Path, help="where there is room for models and logits, some GB")
    one.add_argument("--fresh", action="store_true", help="forget what --out holds")
    one.add_argument("--out", type=pathlib.Path, required=True)
    one.set_defaults(do=run)
    two = commands.add_parser("table", help="print results as Markdown")
    two.add_argument("results", nargs="+", type=pathlib.Path)
    two.set_defaults(do=table)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main()
