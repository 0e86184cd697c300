#!/usr/bin/env python3
"""Runs onw and other engines in turns on the same values; see README.md beside this file."""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import engines  # noqa: E402
import machine  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
CASES = ["prompt:512", "decode:0", "decode:8192", "batch:4", "batch:8"]


def read(path):
    if path.exists():
        return json.loads(path.read_text())
    return {"machine": machine.card(), "date": datetime.date.today().isoformat(), "runs": []}


def write(path, results):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")


def entry(results, model, case, engine):
    """The record of one engine at one case: its values, one a round."""
    for found in results["runs"]:
        if (found["model"], found["case"], found["engine"]) == (model, case, engine):
            return found
    results["runs"].append({"model": model, "case": case, "engine": engine, "values": []})
    return results["runs"][-1]


def asked(options, model, case):
    """Engine name to a call that measures it once."""
    name, given, places = model.partition("=")
    if not given or ":" not in places:
        raise SystemExit(f"--model {model}: NAME=MODEL:GGUF is wanted")
    folder, _, gguf = places.rpartition(":")
    kind, _, size = case.partition(":")
    calls = {"onw": lambda: engines.onw(options.onw, folder, kind, int(size), options.threads)}
    for peer in options.peer:
        label, _, rest = peer.partition("=")
        sort, _, path = rest.partition(":")
        if sort == "onw":  # on another device
            calls[label] = lambda d=path: engines.onw(options.onw, folder, kind, int(size), options.threads, d)
            continue
        measure = engines.PEERS[sort]
        calls[label] = lambda m=measure, p=path: m(p, gguf, kind, int(size), options.threads)
    return name, {label: call for label, call in calls.items() if not options.only or label in options.only}


def measure_once(record, call):
    try:
        found = call()
    except engines.CannotDo as why:
        record["cannot"] = str(why)
        return None
    record["values"].append(round(found.pop("value"), 3))
    record.pop("cannot", None)
    if found.get("version"):
        record["version"] = found["version"]
    for key in ("bytes_per_s", "ops_per_s", "roofs", "isa"):
        if key in found:
            record[key] = found[key]
    return record["values"][-1]


def forget(results, model, case, engines_asked):
    results["runs"] = [r for r in results["runs"]
                       if (r["model"], r["case"]) != (model, case) or r["engine"] not in engines_asked]


def run(options):
    results = read(options.out)
    for model in options.model:
        for case in options.cases:
            if options.fresh:
                forget(results, model.partition("=")[0], case, asked(options, model, case)[1])
            for _ in range(options.rounds):
                name, calls = asked(options, model, case)
                for engine, call in calls.items():
                    record = entry(results, name, case, engine)
                    if len(record["values"]) >= options.rounds or "cannot" in record:
                        continue
                    value = measure_once(record, call)
                    print(f"{name} {case} {engine}: {value if value is not None else record['cannot']}", flush=True)
                    write(options.out, results)


def figure(record):
    if record is None or not record["values"]:
        return "–"
    median = statistics.median(record["values"])
    spread = (max(record["values"]) - min(record["values"])) / median
    shown = {"bytes": f"{median / 1e9:.2f} GB", "s": f"{median:.2f} s", "share": f"{median:.3f}"}
    return f"{shown.get(unit(record), f'{median:.1f}')} ± {100 * spread / 2:.0f} %"


def unit(record):
    return engines.UNITS[record["case"].partition(":")[0]]


def ratio(mine, theirs):
    """Above 1 where onw is the better one."""
    one, other = (statistics.median(record["values"]) for record in (mine, theirs))
    return one / other if unit(mine) == "tokens/s" else other / one


def share(record):
    roofs = record.get("roofs")
    if not roofs:
        return "–"
    parts = [f"{100 * record['bytes_per_s'] / roofs['read_bytes_per_s']:.0f} % read"]
    if record["case"].startswith("prompt"):
        parts = [f"{100 * record['ops_per_s'] / roofs['vector_ops_per_s']:.0f} % of the vector products"]
    return ", ".join(parts)


def table(options):
    for path in options.results:
        try:
            results = json.loads(path.read_text())
        except (OSError, ValueError) as why:
            raise SystemExit(f"{path}: {why}") from None
        if not all("case" in r for r in results.get("runs", [{}])):
            raise SystemExit(f"{path}: not of compare.py: bench/quality.py table prints qualities, docs/quality.md shows activations")
        card = results["machine"]
        print(f"{card['cpu']}, {card['cores']} cores, {', '.join(card['instructions'])}; {results['date']}\n")
        names = list(dict.fromkeys(r["engine"] for r in results["runs"]))
        peers = [name for name in names if name != "onw"]
        print("| model | case | onw | roof | " + " | ".join(f"{p} | ×" for p in peers) + " |")
        print("|---|---|---:|---:|" + "---:|---:|" * len(peers))
        for model, case in dict.fromkeys((r["model"], r["case"]) for r in results["runs"]):
            found = {r["engine"]: r for r in results["runs"] if (r["model"], r["case"]) == (model, case)}
            mine = found.get("onw")
            cells = [model, case.replace(":", " "), figure(mine), share(mine) if mine else "–"]
            for peer in peers:
                theirs = found.get(peer)
                both = mine and theirs and mine["values"] and theirs["values"]
                cells.append(figure(theirs))
                cells.append(f"{ratio(mine, theirs):.2f}" if both else "–")
            print("| " + " | ".join(cells) + " |")
        print()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("run", help="measure, and add to --out")
    one.add_argument("--onw", default=ROOT / "build" / "release" / "onw")
    one.add_argument("--model", action="append", required=True, metavar="NAME=MODEL:GGUF")
    one.add_argument("--peer", action="append", default=[], metavar="NAME=KIND:PATH")
    one.add_argument("--cases", nargs="+", default=CASES)
    one.add_argument("--only", nargs="+", help="measure these engines only")
    one.add_argument("--rounds", type=int, default=3)
    one.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    one.add_argument("--fresh", action="store_true", help="forget what was measured of these cases before")
    one.add_argument("--out", type=pathlib.Path, required=True)
    one.set_defaults(do=run)
    two = commands.add_parser("table", help="print results as Markdown")
    two.add_argument("results", nargs="+", type=pathlib.Path)
    two.set_defaults(do=table)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main()
