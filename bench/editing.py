#!/usr/bin/env python3
"""How much of an edit prompt lookup guesses: 20 edits of functions of Python's standard library, by onw's own counters.

    bench/editing.py run MODEL --out bench/results/editing-NAME.json [--recordings DIR]
    bench/editing.py replay OTHER --recordings DIR --out bench/results/editing-OTHER.json [--what edit|answer] [--accept P]
    bench/editing.py table bench/results/editing-*.json

Two things are measured, and they are not the same. `answers`: what the model itself answers, greedily, to the request (`onw serve`; at most
400 tokens). It is the acceptance that a user of this model gets; a small model may repeat the code without the edit or wander off, so
each answer's likeness to the right one and to the code in the request (difflib's ratio) stands beside it, with the number of right answers.
`edits`: the right edited text as the answer, whatever the model would say (`onw bench --replay`): the acceptance of a model that edits
faultlessly. --recordings keeps the token ids of both, and `replay` times them on other weights, whose vocabulary must be as large: how
much faster drafts make a model of that size whose answers are guessed as often. --accept leaves prompt lookup out and has the model's MTP
layer guess right in so many of 100 cases (`onw bench --accept`), as measured elsewhere. `tokens a step` is answered tokens over steps of the
model, acceptance the share of drafted tokens that were right. How long drafts are follows from what steps cost at the time, so a busy
machine moves both a little, and speeds much: --counts-only leaves speeds out. ONW is the program (default build/release/onw).
"""
import argparse
import datetime
import difflib
import http.client
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import editing_prompts  # noqa: E402
import machine  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
ONW = os.environ.get("ONW") or str(ROOT / "build" / "release" / "onw")
MOST_TOKENS = 400
CONTEXT = 4096


def onw(*words, stdin=""):
    done = subprocess.run([ONW, *map(str, words)], input=stdin, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"onw {' '.join(map(str, words))}: {done.stderr.strip()}")
    return done.stdout


class Server:
    """onw serve on a port of its own."""

    def __init__(self, model, *flags):
        self.process = subprocess.Popen([ONW, "serve", model, "--port", "0", *flags], stderr=subprocess.PIPE, text=True)
        told = ""
        for line in self.process.stderr:
            told += line
            found = re.search(r"Serving at http://127\.0\.0\.1:(\d+)/v1", line)
            if found:
                self.port = int(found[1])
                return
        sys.exit(f"the server did not start:\n{told}")

    def ask(self, prompt):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": MOST_TOKENS, "temperature": 0}
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        answer = json.loads(connection.getresponse().read())
        if "choices" not in answer:
            sys.exit(f"the server answered {answer}")
        return answer["choices"][0]["message"]["content"], answer["usage"]

    def end(self):
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=60)


def code_of(answer):
    """What stands between the first fences; all of it where there are none."""
    found = re.search(r"```[a-z]*\n(.*?)(\n```|$)", answer, flags=re.S)
    return (found[1] if found else answer).strip()


def row(edit, tokens, drafted, accepted, **more):
    return {"kind": edit.kind, "source": edit.source, "tokens": tokens, "drafted": drafted, "accepted": accepted, **more}


def answers(model, edits):
    """(figures, text) of what the model answers."""
    server = Server(model, "--context", str(CONTEXT))
    for edit in edits:
        text, usage = server.ask(edit.prompt())
        details = usage["completion_tokens_details"]
        code = code_of(text)
        yield row(edit, usage["completion_tokens"], details["drafted_tokens"], details["accepted_draft_tokens"],
                  prompt_tokens=usage["prompt_tokens"], right=code == edit.after.strip(), likeness=likeness(code, edit.after),
                  likeness_to_the_code_given=likeness(code, edit.before)), text
    server.end()


def likeness(code, other):
    return round(difflib.SequenceMatcher(None, code, other.strip(), autojunk=False).ratio(), 3)


def ids_of(model, text, *flags):
    return json.loads(onw("tokenize", model, "--json", *flags, stdin=text))["ids"]


def record(model, edits, texts, what, folder):
    """Token ids of prompt and answer, a file an edit; gives the entries of index.json."""
    folder.mkdir(parents=True, exist_ok=True)
    index = []
    for i, (edit, text) in enumerate(zip(edits, texts, strict=True)):
        request = {"messages": [{"role": "user", "content": edit.prompt()}], "add_generation_prompt": True}
        prompt = ids_of(model, onw("render", model, stdin=json.dumps(request)), "--special")
        answer = ids_of(model, text)
        name = f"{what}-{i:02}.txt"
        (folder / name).write_text(" ".join(map(str, prompt + answer)) + "\n")
        index.append({"what": what, "file": name, "kind": edit.kind, "source": edit.source, "prompt_tokens": len(prompt),
                      "answer_tokens": len(answer)})
    return index


def replayed(model, folder, entry, accept=None):
    """Figures of one recording; the speeds without drafts and with them where steps of this model are of interest."""
    rows = entry["answer_tokens"] - 1
    mtp_alone = ["--no-pld", "--accept", accept] if accept else []
    told = json.loads(onw("bench", model, "--replay", folder / entry["file"], "--prompt", 0, "--depth", entry["prompt_tokens"],
                          "--decode", rows, "--no-load", "--json", *mtp_alone))
    run = next(r for r in told["runs"] if "drafted" in r)
    return {"kind": entry["kind"], "source": entry["source"], "tokens": rows, "drafted": run["drafted"], "accepted": run["accepted"],
            "prompt_tokens": entry["prompt_tokens"], "tokens_per_s": run["tokens_per_s"],
            "plain_tokens_per_s": run["plain_tokens_per_s"]}


def replays(model, folder, entries, accept=None):
    for entry in entries:
        r = replayed(model, folder, entry, accept)
        print(f"{entry['file']}: {r['accepted']} of {r['drafted']} drafted right, {r['tokens']} tokens, "
              f"{r['tokens_per_s'] / r['plain_tokens_per_s']:.2f} times as fast", file=sys.stderr)
        yield r


def summary(rows):
    """Over all tokens of all edits, not the mean of edits; the least and the median of edits beside it."""
    tokens, drafted, accepted = (sum(r[k] for r in rows) for k in ("tokens", "drafted", "accepted"))
    a_step = sorted(r["tokens"] / (r["tokens"] - r["accepted"]) for r in rows)
    found = {"edits": len(rows), "tokens": tokens, "drafted": drafted, "accepted": accepted,
             "acceptance": round(accepted / drafted, 4) if drafted else None, "accepted_share_of_tokens": round(accepted / tokens, 4),
             "tokens_a_step": round(tokens / (tokens - accepted), 3),
             "tokens_a_step_of_edits": {"least": round(a_step[0], 3), "median": round(statistics.median(a_step), 3),
                                        "most": round(a_step[-1], 3)}}
    if "plain_tokens_per_s" in rows[0]:
        plain, drafts = (sum(r["tokens"] / r[k] for r in rows) for k in ("plain_tokens_per_s", "tokens_per_s"))
        found["times_as_fast"] = round(plain / drafts, 3)
    if "right" in rows[0]:
        found |= {"right_answers": sum(r["right"] for r in rows),
                  "median_likeness": statistics.median(r["likeness"] for r in rows),
                  "median_likeness_to_the_code_given": statistics.median(r["likeness_to_the_code_given"] for r in rows)}
    return found


def head(model):
    return {"what": "prompt lookup on edits of Python's standard library", "date": datetime.date.today().isoformat(),
            "machine": machine.card(), "onw": onw("--version").strip(), "model": model.name}


def run(options):
    edits = editing_prompts.edits()[:options.edits]
    report = head(options.model) | {"python": sys.version.split()[0], "most_tokens": MOST_TOKENS}
    rows, texts = [], []
    for r, text in answers(options.model, edits):
        rows.append(r), texts.append(text)
        print(f"answer to {r['source']}: {r['accepted']} of {r['drafted']} drafted right, {r['tokens']} tokens", file=sys.stderr)
    report["answers"] = {"summary": summary(rows), "edits": rows}
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.recordings or pathlib.Path(temporary)
        index = record(options.model, edits, texts, "answer", folder)
        right = record(options.model, edits, [e.answer() for e in edits], "edit", folder)
        (folder / "index.json").write_text(json.dumps(index + right, indent=1) + "\n")
        rows = list(replays(options.model, folder, right))
    if options.counts_only:
        rows = [{k: v for k, v in r.items() if not k.endswith("per_s")} for r in rows]
    report["edits"] = {"summary": summary(rows), "edits": rows}
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    table([report])


def replay(options):
    index = [e for e in json.loads((options.recordings / "index.json").read_text()) if e["what"] == options.what]
    rows = []
    for row in replays(options.model, options.recordings, index[:options.edits], options.accept):
        rows.append(row)
        report = head(options.model) | {options.what + "s": {"summary": summary(rows), "edits": rows}}
        if options.accept:
            report |= {"what": "drafts of the MTP layer on recorded answers, as often right as given", "accept_percent": options.accept}
        options.out.write_text(json.dumps(report, indent=1) + "\n")  # after each: what is stopped keeps those before
    table([report])


def table(reports):
    print("| model | what is answered | tokens | drafted | accepted | acceptance | tokens a step (least, median, most edit) | "
          "times as fast | right answers |\n|---|---|---:|---:|---:|---:|---|---:|---|")
    for report in reports:
        for key, name in (("answers", "its own answer"), ("edits", "the right edit")):
            if key not in report:
                continue
            s = report[key]["summary"]
            of = s["tokens_a_step_of_edits"]
            right = f"{s['right_answers']} of {s['edits']}" if "right_answers" in s else ""
            acceptance = "none drafted" if s["acceptance"] is None else f"{100 * s['acceptance']:.1f} %"
            print(f"| {report['model']} | {name} | {s['tokens']} | {s['drafted']} | {s['accepted']} | {acceptance} | "
                  f"{s['tokens_a_step']:.2f} ({of['least']:.2f}, {of['median']:.2f}, {of['most']:.2f}) | "
                  f"{s.get('times_as_fast', '')} | {right} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("run")
    one.add_argument("model", type=pathlib.Path)
    one.add_argument("--out", type=pathlib.Path, required=True)
    one.add_argument("--recordings", type=pathlib.Path)
    one.add_argument("--edits", type=int, default=20)
    one.add_argument("--counts-only", action="store_true")
    one.set_defaults(act=run)
    three = commands.add_parser("replay")
    three.add_argument("model", type=pathlib.Path)
    three.add_argument("--recordings", type=pathlib.Path, required=True)
    three.add_argument("--what", choices=["edit", "answer"], default="edit")
    three.add_argument("--out", type=pathlib.Path, required=True)
    three.add_argument("--edits", type=int, default=20)
    three.add_argument("--accept", metavar="P")
    three.set_defaults(act=replay)
    two = commands.add_parser("table")
    two.add_argument("files", type=pathlib.Path, nargs="+")
    two.set_defaults(act=lambda options: table([json.loads(f.read_text()) for f in options.files]))
    options = parser.parse_args()
    options.act(options)


if __name__ == "__main__":
    main()
