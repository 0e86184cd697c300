#!/usr/bin/env python3
"""Compiled graphs and their device as a user meets them: told when it happens, kept, listed, checked and removed. A stand-in for
OpenVINO's library does as it is told."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest

import harness
from harness import onw

FAKE = pathlib.Path(harness.ONW).resolve().parent / "libfake_openvino.so"


class Folder(unittest.TestCase):
    """A cache of its own, and the library."""

    def setUp(self):
        if not FAKE.exists():
            self.skipTest(f"{FAKE.name} is not built: ninja fake_openvino")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "libopenvino_c.so").symlink_to(FAKE)
        self.cache = self.folder / "cache"

    def words(self, script="", **more):
        return dict(ONW_OPENVINO_DIR=self.folder, ONW_FAKE_OPENVINO=script, ONW_CACHE=self.cache) | more

    def records(self):
        """Of the graphs that a device is checked with: those with attention inside come later, and have a check of their own."""
        records = [json.loads(p.read_text()) for p in sorted((self.cache / "blobs").glob("*.json"))]
        return [r for r in records if r["ended"] == "compiled" and not r["segment"].startswith("fused")]


@unittest.skipUnless(FAKE.exists(), f"{FAKE.name} is not built: ninja fake_openvino")
class Chat(Folder):
    """The default device, which is the stand-in's NPU."""

    @classmethod
    def setUpClass(cls):
        harness.converted_model("flat", head=0.01)  # the library's logits are ones: the same model, nearly

    def start(self, script, *words, **more):
        self.errors = self.folder / "err"
        environment = harness.environment(**self.words(script, ONW_NPU_STAND_IN="CPU", **more))
        with open(self.errors, "wb") as stderr:
            return subprocess.Popen([harness.ONW, "chat", "flat", "--max-tokens", "4", "--temperature", "0", *words],
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, env=environment)

    def said(self):
        return self.errors.read_text(errors="replace")

    def see(self, pattern, seconds=60):
        until = time.monotonic() + seconds
        while not re.search(pattern, self.said()):
            self.assertLess(time.monotonic(), until, f"{pattern} does not come: {self.said()}")
            time.sleep(0.02)

    def quit(self, chat):
        """Ends the conversation; the seconds that this took."""
        begun = time.monotonic()
        chat.stdin.close()
        chat.stdout.read()
        code = chat.wait(20)
        chat.stdout.close()
        return code, time.monotonic() - begun

    def make_ready(self):
        """The device is known to work, and the model's graphs are compiled."""
        chat = self.start("")
        self.see("The NPU is ready")
        self.assertEqual(self.quit(chat)[0], 0)

    def test_what_becomes_of_the_device_is_told_when_it_happens_and_not_with_the_next_question(self):
        self.make_ready()  # nothing was asked
        shutil.rmtree(self.cache / "blobs")
        chat = self.start("compile=fail")
        self.see("The CPU answers, without the NPU: ")
        self.assertEqual(self.quit(chat)[0], 0)

    def test_the_line_under_an_answer_names_what_computed_it(self):
        chat = self.start("")
        self.see("The NPU is ready")
        chat.stdin.write(b"abc\n")
        chat.stdin.flush()
        self.see(r"\[prompt .*, on the NPU(, attention inside its graphs up to \d+ tokens)?\]")
        self.assertEqual(self.quit(chat)[0], 0)

    def test_quitting_does_not_wait_for_a_device_that_is_made(self):
        self.make_ready()
        for script in ("import=slow", "compile=slow"):  # in this process, in the library; and in a child
            chat = self.start(script)
            self.see("/help")
            time.sleep(0.5)
            code, seconds = self.quit(chat)
            self.assertEqual(code, 0, self.said())
            self.assertLess(seconds, 2, script)
            self.assertNotIn("ready", self.said())
            shutil.rmtree(self.cache / "blobs")

    def test_an_insisted_device_that_fails_is_told_once_with_what_to_do(self):
        self.make_ready()
        for words, more, by in (["--device", "NPU"], {}, "--device NPU"), ([], {"ONW_DEVICE": "NPU"}, "ONW_DEVICE=NPU"):
            shutil.rmtree(self.cache / "blobs", ignore_errors=True)
            chat = self.start("compile=fail", *words, **more)
            self.see("The NPU does not answer: ")
            chat.stdin.write(b"abc\n")
            chat.stdin.flush()
            self.assertEqual(self.quit(chat)[0], 1)
            self.assertEqual(self.said().count("Compiler returned an error"), 1, self.said())
            self.assertIn(f"the NPU was asked for ({by}) and does not answer", self.said())
            self.assertIn("Start onw with --device CPU", self.said())

    def test_a_variable_that_chose_the_device_is_named(self):
        done = onw("chat", "flat", "--prompt", "a", **self.words("core=fail", ONW_DEVICE="NPU"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("because of ONW_DEVICE=NPU", done.stderr)
        self.assertNotIn("because of", onw("chat", "flat", "--prompt", "a", "--device", "NPU", **self.words("core=fail")).stderr)

    def test_a_disk_that_takes_nothing_is_one_sentence(self):
        self.make_ready()
        shutil.rmtree(self.cache / "blobs")
        (self.cache / "blobs").write_text("a file in the folder's place")
        chat = self.start("")
        self.see("The NPU is ready")
        self.quit(chat)
        self.assertEqual(len(re.findall("not kept", self.said())), 1, self.said())
        self.assertRegex(self.said(), r"\d+ of \d+ compiled graphs are not kept \(.*blobs: .*Let ONW_CACHE name a folder that can be written")
        self.assertNotIn("Free space", self.said())

    def test_the_verdict_lies_with_the_graphs_and_is_renewed_with_them(self):
        chat = self.start("infer=wrong")
        self.see("without the NPU: the NPU computes something else than the CPU")
        self.quit(chat)
        records = self.records()
        self.assertTrue(records)
        self.assertEqual({r.get("self_check", {}).get("passed") for r in records}, {False},
                         [r for r in records if "self_check" not in r])
        self.assertIn("computes something else than the CPU", onw("list", "--cache", **self.words()).stdout)
        chat = self.start("")  # believed, though it would do well now
        self.see("computes something else")
        self.quit(chat)
        head = next(p for p in (self.cache / "blobs").glob("*.json") if json.loads(p.read_text())["segment"] == "head")
        head.with_suffix(".blob").write_text("damaged")
        chat = self.start("")
        self.see("The NPU is ready")
        self.quit(chat)
        self.assertTrue(json.loads(head.read_text())["self_check"]["passed"])


@unittest.skipUnless(FAKE.exists(), f"{FAKE.name} is not built: ninja fake_openvino")
class Compile(Folder):
    @classmethod
    def setUpClass(cls):
        harness.converted_model()

    def test_the_stand_in_is_compiled_for_and_another_is_refused(self):
        done = onw("compile", "tiny", **self.words(ONW_NPU_STAND_IN="CPU"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("attention.1024", done.stdout)
        self.assertIn("fused.1024", done.stdout)
        self.assertIn("Attention inside the graphs up to 1024 tokens", done.stderr)
        self.assertIn("All of them load", done.stderr)
        self.assertIn("ONW_NPU_STAND_IN: these are for OpenVINO's CPU device", done.stderr)
        self.assertNotIn(" 5010", onw("list", "--cache", **self.words()).stdout)  # serving takes it for a 4000
        # What serving wants is there.
        words = self.words("compile=crash", ONW_NPU_STAND_IN="CPU")
        done = onw("compile", "tiny", **words)
        self.assertEqual(done.returncode, 0)
        self.assertNotIn("not to be had", done.stderr)
        self.assertNotIn("fused", onw("compile", "tiny", "--fused", "no", **words).stdout)
        for words in (["compile", "tiny"], ["chat", "tiny", "--prompt", "a"], ["chat", "tiny", "--prompt", "a", "--device", "NPU"]):
            done = onw(*words, **self.words(ONW_NPU_STAND_IN="GPU"))
            self.assertEqual(done.returncode, 2, words)
            self.assertIn("ONW_NPU_STAND_IN is 'GPU'", done.stderr)
            self.assertIn("set it to CPU, or unset it", done.stderr)
        done = onw("compile", "tiny", "--platform", 4000, **self.words(ONW_NPU_STAND_IN="CPU"))
        self.assertEqual(done.returncode, 2)
        self.assertIn("unset it for --platform 4000", done.stderr)

    def test_a_generation_that_is_not_here_is_compiled_for_with_attention_between_and_inside_the_graphs(self):
        done = onw("compile", "tiny", "--platform", 4000, **self.words())
        self.assertEqual(done.returncode, 0, done.stderr)
        for graph in ("body.0", "head", "attention.1024", "fused.1024"):
            self.assertRegex(done.stdout, rf"{re.escape(graph)} +1 ")
            self.assertRegex(done.stdout, rf"{re.escape(graph)} +64 ")
        self.assertIn("Attention inside the graphs up to 1024 tokens", done.stderr)
        self.assertTrue(done.stderr.endswith(" 4000 was asked to load them\n"), done.stderr)
        self.assertNotIn("fused", onw("compile", "tiny", "--platform", 4000, "--fused", "no", **self.words()).stdout)
        again = onw("compile", "tiny", "--platform", 4000, **self.words("compile=crash"))
        self.assertEqual((again.returncode, again.stdout), (0, done.stdout), again.stderr)
        shutil.rmtree(self.cache)
        done = onw("compile", "tiny", "--platform", 5010, **self.words("compile=fail;compile.where=k_new"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("attention.1024", done.stdout)
        self.assertNotIn("fused", done.stdout)
        self.assertIn("Attention inside the graphs: not to be had: ", done.stderr)
        missing = "says=VCL compiler loading failed, aborting: Cannot load library /x/libopenvino_intel_npu_compiler_loader.so"
        done = onw("compile", "tiny", "--platform", 3720, **self.words(missing))
        self.assertEqual(done.returncode, 1)
        self.assertIn("intel-driver-compiler-npu", done.stderr)

    def test_graphs_that_do_not_load_are_an_error_and_what_is_not_tried_is_said(self):
        done = onw("compile", "tiny", **self.words("import=fail"))
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("compiles, but does not load: ", done.stderr)
        self.assertIn("onw compile MODEL --again", done.stderr)
        self.assertEqual(onw("compile", "tiny", "--again", **self.words()).returncode, 0)

    def test_a_second_compile_says_what_it_waits_for(self):
        first = subprocess.Popen([harness.ONW, "compile", "tiny"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                 env=harness.environment(**self.words("compile=slow")))
        try:
            until = time.monotonic() + 30
            while not list((self.cache / "blobs").glob("*.lock")) and time.monotonic() < until:
                time.sleep(0.02)
            with self.assertRaises(subprocess.TimeoutExpired) as late:
                subprocess.run([harness.ONW, "compile", "tiny"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=1,
                               env=harness.environment(**self.words()))
            self.assertRegex(late.exception.stderr.decode(), r"Another onw is compiling \S+ for 1 rows: waiting for it")
        finally:
            first.kill()
            first.wait()

    def test_a_GPU_that_is_not_there_is_not_advised_to_be_an_NPU(self):
        done = onw("compile", "tiny", "--device", "GPU", **self.words())
        self.assertEqual(done.returncode, 1)
        self.assertIn("OpenVINO shows no GPU on this machine", done.stderr)
        self.assertNotIn("--platform", done.stderr)

    def test_a_folder_that_cannot_be_written_is_not_a_full_disk(self):
        self.cache.mkdir()
        (self.cache / "blobs").write_text("a file in the folder's place")
        done = onw("compile", "tiny", **self.words())
        self.assertEqual(done.returncode, 1)
        self.assertIn("Let ONW_CACHE name a folder that can be written", done.stderr)
        self.assertNotIn("Free space", done.stderr)


@unittest.skipUnless(FAKE.exists(), f"{FAKE.name} is not built: ninja fake_openvino")
class Cache(Folder):
    def setUp(self):
        super().setUp()
        if not (harness.HOME / "models" / "cached").exists():
            harness.converted_model("cached")
        self.assertEqual(onw("compile", "cached", **self.words()).returncode, 0)
        self.blobs = self.cache / "blobs"

    def listed(self, **more):
        found = json.loads(onw("list", "--cache", "--json", **self.words(**more)).stdout)["cache"]["entries"]
        return [e for e in found if e["kind"] not in ("table", "layout")]

    def test_records_that_lie_are_shown_as_damaged_with_what_to_do(self):
        records = sorted(self.blobs.glob("*.json"))
        for path, key, value in ((records[0], "bytes", -10**15), (records[1], "model", "a\nb\x1b[31m"), (records[2], "bytes", 10**15)):
            path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
        records[3].with_suffix(".blob").unlink()
        (self.blobs / "film.mkv").write_bytes(b"x" * 12345)
        text = onw("list", "--cache", **self.words()).stdout
        self.assertNotIn("\x1b", text)
        self.assertIn(r"a\nb\x1b[31m", text)
        self.assertNotRegex(text, r"\s-\d|\d TB")
        for why in ("its record cannot be read", "not as long as it was written", "its file is missing", "nothing of onw's"):
            self.assertIn(why, text)
        self.assertIn("onw rm --cache --unused", onw("list", "--cache", **self.words()).stderr)
        self.assertIn(12345, [e["bytes"] for e in self.listed() if e["kind"] == "unknown"])
        self.assertTrue(all(e["bytes"] >= 0 for e in self.listed()))
        done = onw("rm", "--cache", "--unused", "--yes", **self.words())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual({e["trouble"] for e in self.listed()}, {None})
        self.assertFalse((self.blobs / "film.mkv").exists())
        self.assertEqual(onw("compile", "cached", **self.words()).returncode, 0)

    def test_graphs_of_a_model_that_is_gone_and_of_another_OpenVINO_are_of_no_use(self):
        self.assertEqual({e["unused"] for e in self.listed()}, {None})
        words = dict(ONW_FAKE_OPENVINO="version=2031.1.0")
        self.assertEqual({e["unused"] for e in self.listed(**words)}, {"of another OpenVINO"})
        moved = harness.HOME / "moved"
        (harness.HOME / "models" / "cached").rename(moved)
        try:
            self.assertEqual({e["unused"] for e in self.listed()}, {"its model is gone"})
        finally:
            moved.rename(harness.HOME / "models" / "cached")
        self.assertIn("There is nothing", onw("rm", "--cache", "--unused", **self.words()).stderr)
        done = onw("rm", "cached", "--yes", **self.words())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.listed(), [])

    def test_what_is_cached_of_one_model_goes_and_the_model_stays(self):
        done = onw("rm", "other", "--cache", "--yes", **self.words())
        self.assertEqual(done.returncode, 1)
        self.assertIn("nothing is cached of other, but of: cached", done.stderr)
        self.assertTrue(self.listed())
        done = onw("rm", "cached", "--cache", **self.words())
        self.assertEqual(done.returncode, 2)
        self.assertIn("onw rm cached --cache --yes", done.stderr)
        self.assertEqual(onw("rm", "cached", "--cache", "--yes", **self.words()).returncode, 0)
        self.assertEqual(self.listed(), [])
        self.assertIn("cached", onw("list", **self.words()).stdout)
        self.assertEqual(onw("rm", "--cache", "--yes", **self.words()).returncode, 0)
        self.assertEqual(onw("rm", "--unused").returncode, 2)
        self.assertEqual(onw("rm").returncode, 2)


if __name__ == "__main__":
    harness.main()
