#!/usr/bin/env python3
"""A model whose text side would fail later is refused when it is converted, and by onw check."""
import json
import pathlib
import shutil
import struct
import unittest

import harness
import tiny_hf
from harness import onw

FOLDER = pathlib.Path(harness.FOLDER.name)
VOCABULARY = 256 + len(tiny_hf.SPECIAL)


def published(name, **changes):
    """A published folder in which `changes` (file name with _ for the dot: text, or a function of the JSON) are made."""
    folder = tiny_hf.write(FOLDER / "published" / name)
    for key, change in changes.items():
        path = folder / (key.rpartition("_")[0] + "." + key.rpartition("_")[2])
        if callable(change):
            value = json.loads(path.read_text())
            change(value)
            change = json.dumps(value)
        path.write_text(change)
    return folder


def gguf_text(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def tiny_gguf(path, tokens=40, more=()):
    """A Llama of one layer with F32 zeros and a byte-level tokenizer of `tokens` tokens; `more`: (key, text) pairs."""
    hidden, inner, vocabulary = 32, 64, 40
    u32, strings = 4, 8
    keys = [("general.architecture", "llama")]
    numbers = {"embedding_length": hidden, "block_count": 1, "feed_forward_length": inner, "attention.head_count": 2,
               "attention.head_count_kv": 1, "context_length": 128}
    pieces = ["<|endoftext|>"] + [chr(33 + i) for i in range(tokens - 1)]
    body = b"".join(gguf_text(k) + struct.pack("<I", strings) + gguf_text(v)
                    for k, v in [*keys, ("tokenizer.ggml.model", "gpt2"), ("tokenizer.ggml.pre", "gpt-2"), *more])
    body += b"".join(gguf_text("llama." + k) + struct.pack("<II", u32, v) for k, v in numbers.items())
    body += gguf_text("llama.attention.layer_norm_rms_epsilon") + struct.pack("<If", 6, 1e-5)
    body += gguf_text("tokenizer.ggml.eos_token_id") + struct.pack("<II", u32, 0)
    body += gguf_text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, strings, len(pieces)) + b"".join(map(gguf_text, pieces))
    body += gguf_text("tokenizer.ggml.merges") + struct.pack("<IIQ", 9, strings, 1) + gguf_text("! \"")
    body += gguf_text("tokenizer.ggml.token_type") + struct.pack("<IIQ", 9, 5, len(pieces))
    body += struct.pack(f"<{len(pieces)}i", 3, *[1] * (len(pieces) - 1))
    count = 3 + len(more) + len(numbers) + 5
    shapes = {"token_embd": (vocabulary, hidden), "output_norm": (hidden,), "blk.0.attn_norm": (hidden,), "blk.0.ffn_norm": (hidden,),
              "blk.0.attn_q": (hidden, hidden), "blk.0.attn_k": (16, hidden), "blk.0.attn_v": (16, hidden),
              "blk.0.attn_output": (hidden, hidden), "blk.0.ffn_gate": (inner, hidden), "blk.0.ffn_up": (inner, hidden),
              "blk.0.ffn_down": (hidden, inner)}
    table, offset = b"", 0
    for name, shape in shapes.items():
        table += gguf_text(name + ".weight") + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), 0, offset)
        offset += 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
    file = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), count) + body + table
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(file + bytes(-len(file) % 32) + bytes(offset))
    return path


class Refused(unittest.TestCase):
    def refused(self, source, *says):
        """By convert, which leaves nothing, and by check."""
        out = FOLDER / "out"
        for words in (["convert", source, out], ["check", source]):
            done = onw(*words)
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            for word in says:
                self.assertIn(word, done.stderr)
            self.assertEqual([p.name for p in FOLDER.iterdir() if p.name.startswith("out")], [])

    def test_a_tokenizer_that_does_not_load(self):
        self.refused(published("cut", tokenizer_json='{"version": "1.0"'), "tokenizer.json")
        self.refused(published("odd", tokenizer_json=lambda t: t["model"].update(type="Runes")), "tokenizer.json")
        self.refused(published("config", tokenizer_config_json="[]"), "tokenizer_config.json")
        self.refused(published("lfs", tokenizer_json="version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"),
                     "Git LFS")

    def test_a_template_that_does_not_parse(self):
        broken = "{% for m in messages %}{{ m.content }"
        self.refused(published("template", tokenizer_config_json=lambda c: c.update(chat_template=broken)), "template", "syntax error")
        self.refused(published("jinja", chat_template_jinja="{% if %}"), "template", "syntax error")
        none = {"tokenizer_config_json": "{}"}
        self.refused(published("named", chat_template_json="{", **none), "chat_template.json")
        self.refused(published("typed", chat_template_json='{"chat_template": 3}', **none), "chat_template.json", "'chat_template'")

    def test_a_token_beyond_the_vocabulary(self):
        self.refused(published("token", tokenizer_json=lambda t: t["model"]["vocab"].update(beyond=300)),
                     "'beyond'", "the id 300", f"{VOCABULARY} ids", "of another model")

    def test_an_added_token_beyond_the_vocabulary_that_the_template_writes(self):
        def add(tokenizer):
            tokenizer["added_tokens"].append({**tokenizer["added_tokens"][0], "id": VOCABULARY, "content": "<|more|>"})

        unused = published("unused", tokenizer_json=add)
        self.assertEqual(onw("check", unused).returncode, 0, onw("check", unused).stderr)
        self.refused(published("used", tokenizer_json=add, chat_template_jinja="<|more|>{{ messages[0].content }}"),
                     "'<|more|>'", "the chat template writes it")

    def test_files_of_different_models(self):
        model = harness.converted_model("mixed")
        config = json.loads((model / "config.json").read_text())
        for key, value, says in (("intermediate_size", 96, "'layers.0.mlp.gate' is [128, 64], config.json makes it [96, 64]"),
                                 ("num_hidden_layers", 1, "'dimensions.layers' is 2, config.json makes it 1"),
                                 ("num_key_value_heads", 4, "config.json makes it [64, 64]")):
            (model / "config.json").write_text(json.dumps({**config, key: value}))
            for words in (["check", model], ["chat", model, "--prompt", "a"]):
                done = onw(*words)
                self.assertEqual(done.returncode, 1)
                self.assertIn(says, done.stderr)

    def test_a_sampling_default_that_no_request_could_have(self):
        model = harness.converted_model("hot")
        engine = json.loads((model / "engine.json").read_text())
        engine["generation"] = {"temperature": 50}
        (model / "engine.json").write_text(json.dumps(engine))
        for words in (["check", model], ["chat", model, "--prompt", "a"]):
            done = onw(*words)
            self.assertEqual(done.returncode, 1)
            self.assertIn("engine.json: 'generation': temperature is 50", done.stderr)

    def test_answers_that_would_never_end(self):
        def far(config):
            config["eos_token_id"] = 5000

        self.refused(published("endless", config_json=far, generation_config_json=far, tokenizer_config_json=lambda c: c.clear()),
                     "every token that ends an answer (5000)", f"vocabulary of {VOCABULARY}")

    def test_a_gguf_file_with_a_text_side_that_does_not_load(self):
        self.refused(tiny_gguf(FOLDER / "long.gguf", tokens=60), "long.gguf", "of another model")
        self.refused(tiny_gguf(FOLDER / "jinja.gguf", more=[("tokenizer.chat_template", "{% if %}")]), "jinja.gguf", "syntax error")

    def test_a_converted_model_whose_files_were_changed(self):
        model = harness.converted_model("changed")
        self.assertIn("tokenizer and chat template load", onw("check", model).stdout)
        self.assertEqual(json.loads(onw("check", model, "--json").stdout)["chat_template"], True)
        (model / "tokenizer.json").write_text("{}")
        self.assertIn("tokenizer.json", onw("check", model).stderr)
        (model / "tokenizer.json").unlink()
        self.assertIn("chat and serve cannot run it", onw("check", model).stdout)


class Accepted(unittest.TestCase):
    def test_a_model_without_a_template_or_without_a_tokenizer(self):
        plain = tiny_hf.write(FOLDER / "published" / "plain", template="")
        self.assertIn("no chat template", onw("check", plain).stdout)
        self.assertEqual(onw("convert", plain, FOLDER / "plain").returncode, 0)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (plain / name).unlink()
        done = onw("convert", plain, FOLDER / "bare")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("No tokenizer.json", done.stderr)

    def test_a_published_file_is_checked_and_inspected_without_being_converted(self):
        file = tiny_gguf(FOLDER / "whole.gguf")
        home = FOLDER / "empty-home"
        for words, says in ((["check", file], "Not converted"), (["check", file, "--json"], '"converted": false'),
                            (["inspect", file], "token_embd.weight")):
            done = onw(*words, ONW_HOME=home)
            self.assertEqual((done.returncode, done.stderr), (0, ""), words)
            self.assertIn(says, done.stdout)
        self.assertEqual(onw("check", file, "--deep", ONW_HOME=home).returncode, 2)
        self.assertEqual(onw("inspect", file, "--plan", 4, ONW_HOME=home).returncode, 2)
        self.assertFalse(home.exists(), "nothing was converted")
        shutil.copy(file, FOLDER / "short.gguf")
        with open(FOLDER / "short.gguf", "r+b") as cut:
            cut.truncate(file.stat().st_size - 100)
        self.assertIn("short.gguf", onw("check", FOLDER / "short.gguf", ONW_HOME=home).stderr)


if __name__ == "__main__":
    harness.main()
