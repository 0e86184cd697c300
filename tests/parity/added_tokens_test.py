#!/usr/bin/env python3
"""Words beside added tokens are cut as PyPI's `tokenizers` cuts them, whatever flags the added tokens carry."""
import itertools
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import harness  # noqa: E402
try:
    import tokenizers  # noqa: E402
except ImportError:
    print("SKIP added_tokens_test.py: the Python package tokenizers is not installed\n0 passed, 0 failed, 1 skipped")
    sys.exit(0)

FLAGS = ("lstrip", "rstrip", "single_word", "normalized", "special")
WORDS = ("<tag>", "<|mark|>", "word")
TEXTS = [text.replace("@", word) for word in WORDS for text in (
    "@", "a@b", "a @ b", "a  @  b", " @ ", "a\n@\nb", "@@", "@ @", "x@", "@x", "@-@", "日本@語", "a\t@\u3000b", "_@_", "@9", "É@é", ".@.")]


class AddedTokens(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = harness.converted_model("flags")
        cls.plain = json.loads((cls.folder / "tokenizer.json").read_text())

    def test_flags_change_what_is_beside_them_as_the_publisher_s_library_does(self):  # tokenizer/template-033
        text = " | ".join(TEXTS)
        for values in itertools.product((False, True), repeat=len(FLAGS)):
            flags = dict(zip(FLAGS, values))
            made = json.loads(json.dumps(self.plain))
            first = max(token["id"] for token in made["added_tokens"]) + 1
            made["added_tokens"] += [{"id": first + i, "content": word, **flags} for i, word in enumerate(WORDS)]
            made["normalizer"] = {"type": "Lowercase"}
            path = self.folder / "tokenizer.json"
            path.write_text(json.dumps(made, ensure_ascii=False))
            theirs = tokenizers.Tokenizer.from_file(str(path)).encode(text, add_special_tokens=False).ids
            done = harness.onw("tokenize", self.folder, "--special", "--json", stdin=text)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout)["ids"], theirs, flags)


if __name__ == "__main__":
    harness.main()
