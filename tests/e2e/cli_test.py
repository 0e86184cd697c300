#!/usr/bin/env python3
"""The command line as a person or a script meets it: exit codes, what goes where, and a remedy in every error."""
import json
import os
import pathlib
import shutil
import unittest

import harness
from harness import onw

FOLDER = pathlib.Path(harness.FOLDER.name)


def setUpModule():
    harness.converted_model()


class Usage(unittest.TestCase):
    def fails_with(self, code, *words, says=(), **more):
        done = onw(*words, **more)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stdout, "", "errors do not go to stdout")
        for word in says:
            self.assertIn(word, done.stderr)

    def test_a_wrong_command_line_is_two(self):
        self.fails_with(2, says=["Usage: onw COMMAND"])
        self.fails_with(2, "frobnicate", says=["no command 'frobnicate'", "pull", "doctor"])
        self.fails_with(2, "list", "--jsn", says=["--jsn", "onw list --help"])
        self.fails_with(2, "list", "extra", says=["'extra' is one word too many"])
        self.fails_with(2, "convert", "only-one", says=["OUT is missing", "onw convert SRC OUT"])
        self.fails_with(2, "convert", "a", "b", "--for", "gpu", says=["'gpu' is not one of cpu, npu"])
        self.fails_with(2, "convert", "a", "b", "--format", "q9", says=["q4g128"])
        self.fails_with(2, "rm", "tiny", says=["onw rm tiny --yes"])

    def test_what_is_not_there_is_one_with_a_remedy(self):
        self.fails_with(1, "check", "nothing", says=["no model 'nothing'", "onw pull"])
        self.fails_with(1, "check", FOLDER / "nothing.gguf", says=["nothing.gguf: no such file"])
        self.fails_with(1, "rm", "nothing", "--yes", says=["no model 'nothing'"])
        empty = FOLDER / "empty"
        empty.mkdir()
        self.fails_with(1, "check", empty, says=["without a model"])
        published = FOLDER / "published" / "tiny"
        self.assertIn("is whole", onw("check", published).stdout, "converted the first time")
        self.fails_with(2, "convert", published, harness.HOME / "models" / "tiny", says=["exists already"])

    def test_help_and_version_go_to_stdout(self):
        for words in (["--help"], ["-h"], ["help"], ["list", "--help"], ["convert", "-h"], ["--version"]):
            done = onw(*words)
            self.assertEqual((done.returncode, done.stderr), (0, ""), words)
            self.assertNotEqual(done.stdout, "")
        for command in ("pull", "list", "rm", "convert", "check", "doctor"):
            self.assertIn(f"  {command} ", onw("--help").stdout)
            self.assertIn(f"Usage: onw {command}", onw(command, "--help").stdout)

    def test_the_page_of_commands_is_fresh(self):
        self.assertEqual(onw("--help-markdown").stdout, (harness.ROOT / "docs" / "cli.md").read_text(encoding="utf-8"))

    def test_a_full_disk_behind_stdout_is_an_error(self):
        with open("/dev/full", "wb") as full:
            done = harness.subprocess.run([harness.ONW, "--help"], stdout=full, stderr=harness.subprocess.PIPE)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"stdout", done.stderr)


class Models(unittest.TestCase):
    def test_list_is_a_table_or_json(self):
        self.assertIn("tiny", onw("list").stdout)
        models = json.loads(onw("list", "--json", "--cache").stdout)
        self.assertIn("tiny", [m["name"] for m in models["models"]])
        self.assertIn("bytes", models["cache"])

    def test_an_empty_store_says_how_to_fill_it(self):
        done = onw("list", ONW_HOME=FOLDER / "nobody")
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertIn("onw pull", done.stderr)

    def test_a_converted_model_is_whole_until_a_byte_changes(self):
        done = onw("check", "tiny", "--deep")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("every byte read", done.stdout)
        broken = harness.HOME / "models" / "broken"
        shutil.copytree(harness.HOME / "models" / "tiny", broken)
        weights = broken / "weights.safetensors"
        content = bytearray(weights.read_bytes())
        content[len(content) // 2] ^= 1
        weights.write_bytes(content)
        done = onw("check", "broken", "--deep")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("weights.safetensors", done.stderr)
        weights.write_bytes(content[: len(content) // 2])
        self.assertEqual(onw("check", "broken").returncode, 1)
        self.assertEqual(onw("rm", "broken", "--yes").returncode, 0)
        self.assertFalse(broken.exists())

    def test_convert_tells_the_format_and_error_of_each_weight(self):
        done = onw("convert", FOLDER / "published" / "tiny", FOLDER / "eight-bits", "--format", "q8g128")
        self.assertEqual(done.returncode, 0, done.stderr)
        line = next(x for x in done.stdout.splitlines() if x.startswith("layers.0.mlp.down"))
        self.assertIn("q8g128", line)
        self.assertRegex(line, r"error 0\.00\d")

    # platform/ui-158
    def test_folders_may_have_spaces_and_any_letters(self):
        folder = FOLDER / "模型 é – ü"
        shutil.copytree(FOLDER / "published" / "tiny", folder / "källa ⟶")
        done = onw("convert", folder / "källa ⟶", folder / "出力")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("whole", onw("check", folder / "出力", "--deep").stdout)
        self.assertEqual(onw("check", "出力", cwd=folder).returncode, 0)
        done = onw("list", ONW_HOME=folder / "home")
        self.assertEqual((done.returncode, done.stdout), (0, ""))


class Doctor(unittest.TestCase):
    def test_tells_what_there_is_as_text_and_json(self):
        done = onw("doctor")
        self.assertEqual(done.returncode, 0, done.stderr)
        for word in ("CPU", "instruction sets", "memory", "read bandwidth", "GB/s"):
            self.assertIn(word, done.stdout)
        found = json.loads(onw("doctor", "--json").stdout)
        self.assertGreater(found["roofs"]["read_bytes_per_s"], 0)
        self.assertIn(found["isa"], found["isas"])

    def test_a_report_holds_no_path_of_the_machine(self):
        done = onw("doctor", "--report")
        self.assertNotIn(str(harness.HOME), done.stdout)

    def test_says_when_less_is_used_than_there_is(self):
        found = json.loads(onw("doctor", "--json", ONW_ISA="generic").stdout)
        self.assertEqual(found["isa"], "generic")
        if len(found["isas"]) > 1:
            self.assertIn("unset ONW_ISA", " ".join(found["advice"]))


class Silence(unittest.TestCase):
    # platform/ui-168
    def test_nothing_but_our_own_words_reaches_stderr(self):
        for words in (["list"], ["check", "tiny"], ["list", "--json"], ["--version"]):
            self.assertEqual(onw(*words).stderr, "", words)


if __name__ == "__main__":
    os.chdir(harness.FOLDER.name)
    harness.main()
