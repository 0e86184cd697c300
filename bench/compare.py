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


def place(path):
    """Of a file or folder that is here, from wherever an engine runs; a name of the store stays a name."""
    return os.path.abspath(path) if os.path.exists(path) else path


def asked(options, model, case):
    """Engine name to the files that it reads and a call that measures it once."""
    name, given, places = model.partition("=")
    if not given or ":" not in places:
        raise SystemExit(f"--model {model}: NAME=MODEL:GGUF is wanted")
    folder, gguf = (place(path) for path in places.rsplit(":", 1))
    kind, _, size = case.partition(":")
    calls = {}  # by engine: what it reads, and the call
    for isa in options.isa:
        label = f"onw-{isa}" if isa else "onw"
        calls[label] = folder, lambda i=isa: engines.onw(options.onw, folder, kind, int(size), options.threads, isa=i)
    for peer in options.peer:
        label, _, rest = peer.partition("=")
        sort, _, path = rest.partition(":")
        if sort == "onw":  # on another device
            calls[label] = folder, lambda d=path: engines.onw(options.onw, folder, kind, int(size), options.threads, d)
            continue
        measure = engines.PEERS[sort]
        calls[label] = gguf, lambda m=measure, p=place(path): m(p, gguf, kind, int(size), options.threads)
    return name, {label: call for label, call in calls.items() if not options.only or label in options.only}


def bring_to_memory(place):
    """Reads the model's files, so that what the engine before it drove out of the page cache is not timed."""
    path = pathlib.Path(place)
    for file in sorted(path.glob("*.safetensors")) if path.is_dir() else [path]:
        if file.is_file():
            with open(file, "rb", buffering=0) as f:
                while f.read(1 << 24):
                    pass


def measure_once(record, call, model):
    bring_to_memory(model)
    try:
        found = call()
    except engines.CannotDo as why:
        record["cannot"] = str(why)
        return None
    record["values"].append(round(found.pop("value"), 3))
    record.pop("cannot", None)
    if "roofs" in found:
        record.setdefault("roofs", []).append(found.pop("roofs"))  # each round is held against its own
    record.update({key: value for key, value in found.items() if value})
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
                for engine, (files, call) in calls.items():
                    record = entry(results, name, case, engine)
                    if len(record["values"]) >= options.rounds or "cannot" in record:
                        continue
                    value = measure_once(record, call, files)
                    print(f"{name} {case} {engine}: {value if value is not None else record['cannot']}", flush=True)
                    write(options.out, results)


def figure(record):
    if record is None or not record["values"]:
        return "–"
    median = statistics.median(record["values"])
    spread = (max(record["values"]) - min(record["values"])) / median
    shown = {"bytes": f"{median / 1e9:.2f} GB", "s": f"{median:.2f} s", "share": f"{median:.3f}"}
    return shown.get(unit(record), f"{median:.1f}") + (f" ± {100 * spread / 2:.0f} %" if len(record["values"]) > 1 else " once") + \
        (f", cold {record['cold_s']:.2f} s" if "cold_s" in record else "")


def unit(record):
    return engines.UNITS[record["case"].partition(":")[0]]


def ratio(mine, theirs):
    """Above 1 where onw is the better one."""
    one, other = (statistics.median(record["values"]) for record in (mine, theirs))
    return one / other if unit(mine) == "tokens/s" else other / one


def share(record):
    """Of the roof that bounds the case: the median of the rounds whose roofs were kept (the last ones)."""
    if not record.get("roofs"):
        return "–"
    prompt = record["case"].startswith("prompt")
    work, roof = ("ops_per_token", "vector_ops_per_s") if prompt else ("bytes_per_token", "read_bytes_per_s")
    shares = [value * record[work] / roofs[roof] for value, roofs in zip(record["values"][-len(record["roofs"]):], record["roofs"])]
    return f"{100 * statistics.median(shares):.0f} % " + ("of the vector products" if prompt else "read")


def memory(record):
    return f"{record['peak_bytes'] / 1e6:.0f} MB" if record and record.get("peak_bytes") else "–"


def roofs_text(runs):
    """The range of each roof over all rounds, by instruction set."""
    lines = []
    for isa in dict.fromkeys(r["isa"] for r in runs if r.get("roofs")):
        all_roofs = [roofs for r in runs if r.get("isa") == isa for roofs in r.get("roofs", [])]
        texts = []
        for key, unit, label in (("read_bytes_per_s", 1e9, "GB/s read"), ("vector_ops_per_s", 1e12, "TOPS in vectors"),
                                 ("ops_per_s", 1e12, "TOPS in tiles")):
            values = sorted(roofs[key] / unit for roofs in all_roofs)
            if key != "ops_per_s" or isa == "amx":
                texts.append(f"{values[0]:.2f}–{values[-1]:.2f} {label} (median {statistics.median(values):.2f})")
        lines.append(f"Roofs with {isa}: " + ", ".join(texts))
    return "\n".join(lines)


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
        print(roofs_text(results["runs"]) + "\n")
        names = list(dict.fromkeys(r["engine"] for r in results["runs"]))
        own = "onw" if "onw" in names else names[0]  # or the first of its levels
        peers = [name for name in names if name != own]
        print(f"| model | case | {own} | roof | memory | " + " | ".join(f"{p} | ×" for p in peers) + " |")
        print("|---|---|---:|---:|---:|" + "---:|---:|" * len(peers))
        for model, case in dict.fromkeys((r["model"], r["case"]) for r in results["runs"]):
            found = {r["engine"]: r for r in results["runs"] if (r["model"], r["case"]) == (model, case)}
            mine = found.get(own)
            cells = [model, case.replace(":", " "), figure(mine), share(mine) if mine else "–", memory(mine)]
            for peer in peers:
                theirs = found.get(peer)
                both = mine and theirs and mine["values"] and theirs["values"]
                cells.append(figure(theirs) + (f" ({share(theirs)})" if theirs and theirs.get("roofs") else ""))
                cells.append(f"{ratio(mine, theirs):.2f}" if both else "–")
            print("| " + " | ".join(cells) + " |")
        print()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("run", help="measure, and add to --out")
    one.add_argument("--onw", type=place, default=ROOT / "build" / "release" / "onw")
    one.add_argument("--model", action="append", required=True, metavar="NAME=MODEL:GGUF")
    one.add_argument("--peer", action="append", default=[], metavar="NAME=KIND:PATH")
    one.add_argument("--cases", nargs="+", default=CASES)
    one.add_argument("--isa", nargs="+", default=[""], metavar="LEVEL", help="onw with ONW_ISA set to these, as onw-LEVEL")
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
