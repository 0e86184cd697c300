#!/usr/bin/env python3
"""Runs the stages of tests/stages.tsv and adds up what they count. Started by test.sh, which installs what is missing."""
import argparse
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from counts import Counts, parse  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PATIENCE = 3  # a stage is ended at this multiple of its budget, so that a hang is a failure


def stages(table):
    for line in table.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, budget, when, command = line.split("\t")
            yield name, int(budget), when, command


def environment():
    """What test scripts may rely on: ONW, ONW_BUILD, ONW_PYTHON, ONW_TEST_MODELS, and a store of their own."""
    build = ROOT / "build"
    env = dict(os.environ)
    env.update(ONW=str(build / "release" / "onw"), ONW_BUILD=str(build / "release"), ONW_PYTHON=str(build / "venv" / "bin" / "python"),
               ONW_TEST_MODELS=str(build / "models"), ONW_HOME=str(build / "test-home"), ONW_CACHE=str(build / "test-cache"),
               PYTHONUNBUFFERED="1", GTEST_COLOR="no")
    env["VIRTUAL_ENV"] = str(build / "venv")  # where OpenVINO is looked for
    return env


def end(process):
    """Ends a stage with all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run(command, seconds, env, log):
    """The output and the exit code of a command; the output goes to the terminal and to the file `log` as it comes."""
    process = subprocess.Popen(command, shell=True, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)
    timer = threading.Timer(seconds, end, (process,))
    timer.start()
    text = []
    with open(log, "w", encoding="utf-8") as out:
        for line in process.stdout:
            text.append(line)
            out.write(line)
            print("   ", line, end="", flush=True)
    code = process.wait()
    timer.cancel()
    end(process)
    return "".join(text), code


def main():
    parser = argparse.ArgumentParser(description="Runs the stages of tests/stages.tsv.")
    parser.add_argument("--quick", action="store_true", help="only the stages marked quick")
    parser.add_argument("stage", nargs="*", help="only these stages")
    options = parser.parse_args()
    table = list(stages(ROOT / "tests" / "stages.tsv"))
    unknown = set(options.stage) - {name for name, *_ in table}
    if unknown:
        parser.error(f"no stage {', '.join(sorted(unknown))}; there are {', '.join(name for name, *_ in table)}")
    logs = ROOT / "build" / "test-logs"
    logs.mkdir(parents=True, exist_ok=True)
    env, total, rows = environment(), Counts(), []
    for name, budget, when, command in table:
        if (options.stage and name not in options.stage) or (options.quick and when != "quick"):
            continue
        print(f"== {name} (budget {budget} s): {command}", flush=True)
        started = time.monotonic()
        text, code = run(command, budget * PATIENCE, env, logs / f"{name.replace(' ', '-')}.log")
        elapsed = time.monotonic() - started
        counts = parse(text, code, name)
        total.add(counts)
        rows.append((name, counts, elapsed, budget))
        if name == "build" and counts.failed:
            break
    print()
    for name, counts, elapsed, budget in rows:
        late = "  over budget" if elapsed > budget else ""
        print(f"{name:14} {counts.summary():42} {elapsed:6.0f} s of {budget}{late}")
    for skip in total.skips:
        print(f"skipped  {skip}")
    for fault in total.faults:
        print(f"failed   {fault}")
    print(total.summary())
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
