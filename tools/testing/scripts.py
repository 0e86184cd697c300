#!/usr/bin/env python3
"""Runs every test script (*_test.sh, *_test.py) of some folders, and prints their counts.

    scripts.py FOLDER ... [--seconds N]

A script prints `SKIP name: why` for each skip and ends with `N passed, N failed, N skipped`, or is a unittest with verbosity=2, which
shows why it skips. Its environment: ONW (the program), ONW_BUILD, ONW_PYTHON (with tests/requirements.txt), ONW_TEST_MODELS (see
tools/fetch_models.py), and an ONW_HOME and ONW_CACHE that are the tests' own.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from counts import Counts, parse  # noqa: E402


def interpreter(script):
    if script.suffix == ".sh":
        return "bash"
    python = os.environ.get("ONW_PYTHON", "")
    return python if python and os.access(python, os.X_OK) else sys.executable


def run(script, seconds):
    try:
        done = subprocess.run([interpreter(script), str(script)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              stdin=subprocess.DEVNULL, timeout=seconds)
        text, code = done.stdout.decode(errors="replace"), done.returncode
    except subprocess.TimeoutExpired as late:
        text, code = (late.stdout or b"").decode(errors="replace") + f"\nnot finished in {seconds} s\n", 124
    return text, parse(text, code, script.name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--seconds", type=int, default=600, help="for one script")
    options = parser.parse_args()
    scripts = sorted(p for folder in options.folders for pattern in ("*_test.sh", "*_test.py") for p in folder.glob(pattern))
    if not scripts:
        print(f"SKIP {options.folders[0]}: holds no test script yet\n0 passed, 0 failed, 1 skipped")
        return 0
    total = Counts()
    for script in scripts:
        started = time.monotonic()
        text, counts = run(script, options.seconds)
        print(f"{script.name:30} {counts.passed} ok, {counts.failed} failed, {len(counts.skips)} left out  {time.monotonic() - started:.1f} s")
        if counts.failed:
            print("\n".join(f"  | {line}" for line in text.splitlines()[-60:]), flush=True)
        total.add(counts)
    for fault in total.faults:
        print(f"FAIL {fault}")
    for skip in total.skips:
        print(f"SKIP {skip}")
    print(total.summary())
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
