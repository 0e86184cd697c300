#!/usr/bin/env python3
"""Runs every libFuzzer target of build/fuzz on its seed corpus, two at a time, within a total time.

    fuzz.py [--seconds N] [--each N] [--only NAME ...] [--build DIR]

The seeds of x_fuzz.cpp lie in tests/corpus/x_fuzz/. What is found new goes to build/corpus/x_fuzz and is used again; an input that
crashes a target stays in build/corpus/x_fuzz-crashes/ and fails the run.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def sources():
    return {p.stem: p for p in sorted(ROOT.glob("[a-z]*/**/*_fuzz.cpp")) if "build" not in p.relative_to(ROOT).parts}


def run(build, source, seconds):
    """(name, passed, what to say)."""
    name = source.stem
    program = build / name
    if not program.exists():
        return name, False, f"{program.relative_to(ROOT)} is not built"
    found, crashes = ROOT / "build" / "corpus" / name, ROOT / "build" / "corpus" / f"{name}-crashes"
    found.mkdir(parents=True, exist_ok=True)
    crashes.mkdir(parents=True, exist_ok=True)
    seeds = ROOT / "tests" / "corpus" / name
    command = [str(program), str(found)] + ([str(seeds)] if seeds.is_dir() else []) + [
        f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=2048", "-malloc_limit_mb=1024", f"-artifact_prefix={crashes}/",
        "-print_final_stats=1"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=seconds + 120)
    text = done.stdout.decode(errors="replace")
    runs = re.search(r"number_of_executed_units: (\d+)", text)
    if done.returncode == 0 and runs and int(runs.group(1)) > 0:
        return name, True, f"{runs.group(1)} inputs in {seconds} s"
    return name, False, f"exit code {done.returncode}, the input is in {crashes.relative_to(ROOT)}/\n" + "\n".join(text.splitlines()[-40:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=240, help="for all targets together")
    parser.add_argument("--each", type=int, help="for each target; default: a fair share, at most 60")
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "fuzz")
    options = parser.parse_args()
    targets = [p for name, p in sources().items() if not options.only or name in options.only]
    if not targets:
        print("SKIP fuzz: there is no fuzz target yet\n0 passed, 0 failed, 1 skipped")
        return 0
    cache = options.build / "CMakeCache.txt"
    if not cache.exists():
        print(f"SKIP fuzz: {options.build.relative_to(ROOT)} is not built (the stage sanitizers builds it; needs clang)\n0 passed, 0 failed, 1 skipped")
        return 0
    os.environ.setdefault("ASAN_OPTIONS", "allocator_may_return_null=1")
    rounds = (len(targets) + 1) // 2
    each = options.each or max(5, min(60, options.seconds // rounds - 2))
    failed = 0
    with ThreadPoolExecutor(2) as pool:
        for name, passed, what in pool.map(lambda p: run(options.build, p, each), targets):
            failed += not passed
            print(f"{'ok  ' if passed else 'FAIL'} {name}: {what}", flush=True)
    print(f"{len(targets) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
