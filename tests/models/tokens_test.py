#!/usr/bin/env python3
"""Tokens of the real GGUF models, whose tokenizers are built from their metadata: SmolLM2's against llama.cpp
(tests/data/smollm2_tokens.json, made by tools/make_tokenizer_vectors.py), Gemma's against its publisher's tokenizer.json.
"""
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODELS = pathlib.Path(os.environ.get("ONW_TEST_MODELS", ROOT / "build" / "models"))
ONW = os.environ.get("ONW", str(ROOT / "build" / "release" / "onw"))
sys.path.insert(0, str(ROOT / "tests" / "parity"))
from tokenizer_corpus import corpus  # noqa: E402
from tokenizers_test import fetched  # noqa: E402

counts = {"passed": 0, "failed": 0, "skipped": 0}


def model(name):
    """The GGUF file, fetched if need be; None where it cannot be had."""
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "fetch_models.py"), name, "--into", str(MODELS)],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return done.stdout.strip().splitlines()[-1] if done.returncode == 0 else None


def tokens(source, text):
    done = subprocess.run([ONW, "tokenize", str(source), "--json", "--special"], input=text.encode(), capture_output=True)
    if done.returncode != 0:
        raise SystemExit(f"FAIL onw tokenize {source}: {done.stderr.decode()}")
    return json.loads(done.stdout)["ids"]


def parted(ids, between):
    parts = [[]]
    for token in ids:
        parts.append([]) if token == between else parts[-1].append(token)
    return parts


def report(what, failures):
    counts["failed" if failures else "passed"] += 1
    for failure in failures[:10]:
        print(f"FAIL {what}: {failure}")


def skip(what, why):
    counts["skipped"] += 1
    print(f"SKIP {what}: {why}")


def check_smollm2():
    between, id_between = "<|im_end|>", 2
    path = model("smollm2")
    if path is None:
        return skip("SmolLM2's tokens", "the model could not be fetched")
    rows = [row for row in json.loads((ROOT / "tests/data/smollm2_tokens.json").read_text()) if between not in row[0]]
    # Text between control tokens is cut as a text by itself: one run for all.
    ours = parted(tokens(path, between.join(text for text, _ in rows)), id_between)
    report("SmolLM2's tokens", [f"{text[:50]!r}: llama.cpp {theirs}, onw {got}" for (text, theirs), got in zip(rows, ours) if theirs != got])


def check_gemma():
    path = model("gemma3-270m")
    if path is None:
        return skip("Gemma's tokens", "the model could not be fetched")
    try:
        published = fetched("gemma3", MODELS / "tokenizers")
    except (OSError, subprocess.SubprocessError, StopIteration) as error:
        return skip("Gemma's tokens", f"the publisher's tokenizer could not be fetched ({type(error).__name__})")
    between, id_between = "<eos>", 1
    texts = [text for text in corpus() if between not in text]
    joined = between.join(texts)
    pairs = zip(texts, parted(tokens(published, joined), id_between), parted(tokens(path, joined), id_between))
    report("Gemma's tokens", [f"{text[:50]!r}: published {a}, from the GGUF {b}" for text, a, b in pairs if a != b])


check_smollm2()
check_gemma()
print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
sys.exit(1 if counts["failed"] else 0)
