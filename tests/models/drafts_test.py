#!/usr/bin/env python3
"""Drafting with SmolLM2: the answers are the same with drafts and without, greedy and sampled, alone and side by side; and where
an edit is asked for, looking up what was said before guesses most of it."""
import concurrent.futures
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODELS = pathlib.Path(os.environ.get("ONW_TEST_MODELS", ROOT / "build" / "models"))
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
import harness  # noqa: E402
from server_test import call, serving  # noqa: E402
import unittest  # noqa: E402

CODE = '''def parse_settings(path):
    settings = {}
    with open(path) as lines:
        for line in lines:
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            key, value = line.split("=", 1)
            settings[key.strip()] = value.strip()
    return settings


def write_settings(path, settings):
    with open(path, "w") as out:
        for key in sorted(settings):
            out.write(key + "=" + settings[key] + "\\n")
'''
EDIT = f"Repeat this Python file exactly, line by line, but name the first function read_settings:\n\n```python\n{CODE}```"
LETTER = """The lighthous stands on a rocky island near the harbor. Every evening the keeper climbs the long stairs and lights the lamp.
In winter the waves are so high that nobody can reach the island for weeks, and the keeper lives on what he has stored in autumn.
On clear nights the light is seen from ships that are thirty miles away. Sailors who have been at sea for months say that it is the
first sign of home, and that they would know its slow rhythm among all the other lights along the coast."""
SPELLING = f"Fix the spelling of this text and write it out in full:\n\n{LETTER}"
PROSE = "Tell me a short story about a lighthouse."


def model():
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "fetch_models.py"), "smollm2", "--into", str(MODELS)],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return done.stdout.strip().splitlines()[-1] if done.returncode == 0 else None


def ask(port, text, **more):
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 120, **more}
    status, answer, _ = call(port, "POST", "/v1/chat/completions", body, timeout=300)
    if status != 200:
        raise AssertionError(answer)
    return answer["choices"], answer["usage"]["completion_tokens_details"] | {"tokens": answer["usage"]["completion_tokens"]}


# What is asked: (text, parameters).
ASKED = [(SPELLING, {"temperature": 0}), (SPELLING, {"temperature": 0.7, "seed": 9}), (EDIT, {"temperature": 0}), (EDIT, {"temperature": 0.7, "seed": 1}), (EDIT, {"temperature": 0.7, "seed": 2, "n": 2}),
         (EDIT, {"temperature": 0, "stop": ["write_settings"]}), (EDIT, {"temperature": 0.5, "seed": 3, "logprobs": True, "top_logprobs": 2}),
         (PROSE, {"temperature": 0}), (PROSE, {"temperature": 1, "seed": 4, "frequency_penalty": 0.5})]


class Drafts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.path = model()
        if cls.path is None:
            raise unittest.SkipTest("SmolLM2 could not be fetched")

    # numerics-068
    def test_answers_are_the_same_with_drafts_and_without(self):
        with serving("--no-pld", model=self.path) as (port, _):
            plain = [ask(port, text, **more) for text, more in ASKED]
        with serving(model=self.path) as (port, _):
            drafted = [ask(port, text, **more) for text, more in ASKED]
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                together = list(pool.map(lambda asked: ask(port, asked[0], **asked[1]), ASKED))
            # How far is tried depends on what steps cost at the time: of some tries one is undisturbed on a busy machine, too.
            edits = [drafted[0][1]] + [ask(port, ASKED[0][0], **ASKED[0][1])[1] for _ in range(4)]
        for (text, more), one, two, three in zip(ASKED, plain, drafted, together):
            self.assertEqual(one[0], two[0], more)
            self.assertEqual(one[0], three[0], more)
            self.assertEqual(one[1]["drafted_tokens"], 0)
        edit = max(edits, key=lambda counts: counts["accepted_draft_tokens"])
        print(f"an edit: {edit['tokens']} tokens, {edit['accepted_draft_tokens']} of {edit['drafted_tokens']} drafted ones right")
        self.assertGreater(edit["accepted_draft_tokens"], 0.5 * edit["tokens"], "most of an edit stands in the prompt")
        self.assertGreater(edit["accepted_draft_tokens"], 0.5 * edit["drafted_tokens"])


if __name__ == "__main__":
    harness.main()
