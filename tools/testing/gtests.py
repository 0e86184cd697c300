#!/usr/bin/env python3
"""Runs every *_tests program of a build directory, two at a time, the longest in halves, and prints what failed or was skipped, and the counts.

    gtests.py BUILD [--only NAME[=FILTER] ...] [--filter NAME=FILTER ...] [--seconds N]

--only: these programs, each with a filter of its own as for --gtest_filter. --filter: all programs, these with a filter.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from counts import Counts  # noqa: E402

WHOLE_MODELS = "tests_tests"  # takes longer than all others together, so its tests go into as many runs as go at once
AT_ONCE = 2
TAIL = 30  # lines of a crashed program's output that are shown


def printed_reasons(output):
    """Test -> why it was skipped, by what the program printed.

    GoogleTest 1.12 leaves the reason out of its report; it prints it behind "FILE:LINE: Skipped". What else a test prints before that is left out, what it prints behind stays.
    """
    reasons = {}
    for name, between in re.findall(r"^\[ RUN      \] (\S+)\n(.*?)^\[  SKIPPED \] \1\b", output, re.M | re.S):
        reason = "; ".join(re.findall(r": Skipped\n(.*?)(?=\n?(?:[^\n]*: Skipped\n|\Z))", between, re.S))
        reasons[name] = " ".join(reason.split()).strip("; ")
    return reasons


def read_results(path, output=""):
    """The counts of one gtest report; the reasons of skips also from what the program printed."""
    counts, printed = Counts(), printed_reasons(output)
    for suite in json.loads(pathlib.Path(path).read_text(encoding="utf-8", errors="replace")).get("testsuites", []):
        for test in suite["testsuite"]:
            name = f"{suite['name']}.{test['name']}"
            if test.get("failures"):
                counts.failed += 1
                counts.faults.append(f"{name}\n" + "\n".join(f["failure"] for f in test["failures"])[:2000])
            elif test.get("result") == "SKIPPED":
                why = [s["message"].split("\n", 1)[-1].strip() for s in test.get("skipped", [])]
                counts.skips.append(f"{name}: {'; '.join(filter(None, why)) or printed.get(name) or 'no reason was printed'}")
            elif test.get("result") == "COMPLETED":
                counts.passed += 1
    return counts


def run(program, pattern, seconds, part=0, parts=1):
    """(name, counts, seconds) of one of several parts. A crash or a hang is one failure, with the end of what was printed."""
    started = time.monotonic()
    environment = dict(os.environ, GTEST_TOTAL_SHARDS=str(parts), GTEST_SHARD_INDEX=str(part))
    name = program.name + (f" {part + 1}/{parts}" if parts > 1 else "")
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        command = [str(program), f"--gtest_output=json:{report}"] + ([f"--gtest_filter={pattern}"] if pattern else [])
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=seconds, env=environment)
            output, ended = done.stdout, f"exit code {done.returncode}"
            failed = done.returncode != 0
        except subprocess.TimeoutExpired as late:
            output, ended, failed = late.stdout or b"", f"not finished in {seconds} s", True
        text = output.decode(errors="replace")
        counts = read_results(report, text) if report.exists() and report.stat().st_size else Counts()
        if failed and counts.failed == 0:
            end = "\n".join(text.splitlines()[-TAIL:])
            counts.add(Counts(failed=1, faults=[f"{name}: {ended}\n{end}"]))
    return name, counts, time.monotonic() - started


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--filter", nargs="+", default=[])
    parser.add_argument("--seconds", type=int, default=300, help="for one program")
    options = parser.parse_args()
    only = dict((entry + "=").split("=", 1) for entry in options.only)
    filters = only | dict(entry.split("=", 1) for entry in options.filter)
    programs = [p for p in options.build.glob("*_tests") if os.access(p, os.X_OK) and (not only or p.name in only)]
    programs.sort(key=lambda p: (p.name != WHOLE_MODELS, p.name))
    total = Counts()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        jobs = []
        for program in programs:
            parts = AT_ONCE if program.name == WHOLE_MODELS else 1
            pattern = filters.get(program.name, "").rstrip("=")
            jobs += [pool.submit(run, program, pattern, options.seconds, part, parts) for part in range(parts)]
        for job in jobs:
            name, counts, seconds = job.result()
            print(f"{name:18} {counts.summary()}  {seconds:.1f} s".replace(" passed,", " ok,").replace(" skipped", " left out"), flush=True)
            total.add(counts)
    for fault in total.faults:
        print(f"FAIL {fault}")
    for skip in total.skips:
        print(f"SKIP {skip}")
    print(total.summary())
    return 1 if total.failed or not programs else 0


if __name__ == "__main__":
    sys.exit(main())
