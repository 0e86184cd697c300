#!/usr/bin/env python3
"""How much of an edit prompt lookup guesses: 20 edits of functions of Python's standard library, by onw's own counters.

    bench/editing.py run MODEL --out bench/results/editing-NAME.json [--recordings DIR] [--skip-replay]
    bench/editing.py table bench/results/editing-*.json

Two things are measured, and they are not the same. `answers`: what the model itself answers, greedily, to the request (`onw serve`; at most
400 tokens). It is the acceptance that a user of this model gets; a small model may repeat the code without the edit or wander off, so
each answer's likeness to the right one (difflib's ratio) stands beside it, with the share of right answers. `edits`: the right edited text as the answer, whatever the
model would say (`onw bench --replay`): the acceptance of a model that edits faultlessly. --recordings keeps those token ids, a
file an edit and an index with the length of each prompt, to replay on other weights. `tokens a step` is answered tokens over steps
of the model, acceptance the share of drafted tokens that were right. How long drafts are follows from what steps cost at the
time, so a busy machine moves both a little. ONW is the program (default build/release/onw).
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
    server = Server(model, "--context", str(CONTEXT))
    for edit in edits:
        text, usage = server.ask(edit.prompt())
        details = usage["completion_tokens_details"]
        code = code_of(text)
        yield row(edit, usage["completion_tokens"], details["drafted_tokens"], details["accepted_draft_tokens"],
                  prompt_tokens=usage["prompt_tokens"], right=code == edit.after.strip(),
                  likeness=round(difflib.SequenceMatcher(None, code, edit.after.strip(), autojunk=False).ratio(), 3),
                  likeness_to_the_code_given=round(difflib.SequenceMatcher(None, code, edit.before.strip(), autojunk=False).ratio(), 3))
    server.end()


def ids_of(model, text, *flags):
    return json.loads(onw("tokenize", model, "--json", *flags, stdin=text))["ids"]


def record(model, edits, folder):
    """Token ids of prompt and right answer, a file an edit, and index.json: (file, tokens of the prompt, of the answer)."""
    folder.mkdir(parents=True, exist_ok=True)
    index = []
    for i, edit in enumerate(edits):
        request = {"messages": [{"role": "user", "content": edit.prompt()}], "add_generation_prompt": True}
        prompt = ids_of(model, onw("render", model, stdin=json.dumps(request)), "--special")
        answer = ids_of(model, edit.answer())
        (folder / f"{i:02}.txt").write_text(" ".join(map(str, prompt + answer)) + "\n")
        index.append({"file": f"{i:02}.txt", "kind": edit.kind, "prompt_tokens": len(prompt), "answer_tokens": len(answer)})
    (folder / "index.json").write_text(json.dumps(index, indent=1) + "\n")
    return index


def replays(model, edits, folder):
    for edit, entry in zip(edits, record(model, edits, folder), strict=True):
        rows = entry["answer_tokens"] - 1
        told = json.loads(onw("bench", model, "--replay", folder / entry["file"], "--prompt", 0, "--depth", entry["prompt_tokens"],
                              "--decode", rows, "--no-load", "--json"))
        run = next(r for r in told["runs"] if "drafted" in r)
        yield row(edit, rows, run["drafted"], run["accepted"], prompt_tokens=entry["prompt_tokens"])


def summary(rows):
    """Over all tokens of all edits, not the mean of edits; the least and the median of edits beside it."""
    tokens, drafted, accepted = (sum(r[k] for r in rows) for k in ("tokens", "drafted", "accepted"))
    a_step = sorted(r["tokens"] / (r["tokens"] - r["accepted"]) for r in rows)
    found = {"edits": len(rows), "tokens": tokens, "drafted": drafted, "accepted": accepted,
             "acceptance": round(accepted / drafted, 4) if drafted else None, "accepted_share_of_tokens": round(accepted / tokens, 4),
             "tokens_a_step": round(tokens / (tokens - accepted), 3),
             "tokens_a_step_of_edits": {"least": round(a_step[0], 3), "median": round(statistics.median(a_step), 3),
                                        "most": round(a_step[-1], 3)}}
    if "right" in rows[0]:
        found |= {"right_answers": sum(r["right"] for r in rows),
                  "median_likeness": statistics.median(r["likeness"] for r in rows),
                  "median_likeness_to_the_code_given": statistics.median(r["likeness_to_the_code_given"] for r in rows)}
    return found


def run(options):
    edits = editing_prompts.edits()[:options.edits]
    report = {"what": "prompt lookup on edits of Python's standard library", "date": datetime.date.today().isoformat(),
              "machine": machine.card(), "python": sys.version.split()[0], "onw": onw("--version").strip(), "model": options.model.name,
              "most_tokens": MOST_TOKENS}
    rows = []
    for r in answers(options.model, edits):
        rows.append(r)
        print(f"answer to {r['source']}: {r['accepted']} of {r['drafted']} drafted right, {r['tokens']} tokens", file=sys.stderr)
    report["answers"] = {"summary": summary(rows), "edits": rows}
    if not options.skip_replay:
        with tempfile.TemporaryDirectory() as folder:
            rows = []
            for r in replays(options.model, edits, options.recordings or pathlib.Path(folder)):
                rows.append(r)
                print(f"edit of {r['source']}: {r['accepted']} of {r['drafted']} drafted right, {r['tokens']} tokens", file=sys.stderr)
        report["edits"] = {"summary": summary(rows), "edits": rows}
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    table([report])


def table(reports):
    print("| model | what is answered | tokens | drafted | accepted | acceptance | tokens a step (least, median, most edit) | right answers |")
    print("|---|---|---:|---:|---:|---:|---|---|")
    for report in reports:
        for key, name in (("answers", "its own answer"), ("edits", "the right edit")):
            if key not in report:
                continue
            s = report[key]["summary"]
            of = s["tokens_a_step_of_edits"]
            right = f"{s['right_answers']} of {s['edits']}" if "right_answers" in s else "by construction"
            acceptance = "none drafted" if s["acceptance"] is None else f"{100 * s['acceptance']:.1f} %"
            print(f"| {report['model']} | {name} | {s['tokens']} | {s['drafted']} | {s['accepted']} | {acceptance} | "
                  f"{s['tokens_a_step']:.2f} ({of['least']:.2f}, {of['median']:.2f}, {of['most']:.2f}) | {right} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("run")
    one.add_argument("model", type=pathlib.Path)
    one.add_argument("--out", type=pathlib.Path, required=True)
    one.add_argument("--recordings", type=pathlib.Path)
    one.add_argument("--skip-replay", action="store_true")
    one.add_argument("--edits", type=int, default=20)
    one.set_defaults(act=run)
    two = commands.add_parser("table")
    two.add_argument("files", type=pathlib.Path, nargs="+")
    two.set_defaults(act=lambda options: table([json.loads(f.read_text()) for f in options.files]))
    options = parser.parse_args()
    options.act(options)


if __name__ == "__main__":
    main()
