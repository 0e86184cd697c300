#!/usr/bin/env python3
"""An NPU as a user meets it where it is missing, wrong or lost, by a stand-in for OpenVINO's library that does as it is told."""
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


@unittest.skipUnless(FAKE.exists(), f"{FAKE.name} is not built: ninja fake_openvino")
class Npu(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        harness.converted_model()
        cls.folder = tempfile.TemporaryDirectory()
        pathlib.Path(cls.folder.name, "libopenvino_c.so").symlink_to(FAKE)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def chat(self, script, *words, lines=8):
        with tempfile.TemporaryDirectory() as cache:
            return onw("chat", "tiny", "--max-tokens", 16, "--temperature", 0, *words, stdin=b"abc\n/clear\n" * lines,
                       ONW_OPENVINO_DIR=self.folder.name, ONW_FAKE_OPENVINO=script, ONW_NPU_STAND_IN="CPU", ONW_CACHE=cache)

    def answers_of_the_cpu(self, lines=8):
        return self.chat("", "--device", "CPU", lines=lines).stdout

    # npu-075
    def test_a_device_that_does_not_work_leaves_every_answer_to_the_cpu(self):
        expected = self.answers_of_the_cpu()
        for script in ("version=2023.3.0", "core=fail", "compile=fail", "compile=crash", "infer=lost", "infer=nan"):
            done = self.chat(script)
            self.assertEqual(done.returncode, 0, script + done.stderr)
            self.assertEqual(done.stdout, expected, script)

    def test_a_report_names_no_folder_that_a_device_complains_of(self):
        words = dict(ONW_OPENVINO_DIR=self.folder.name, ONW_FAKE_OPENVINO="compile=none")
        self.assertIn('Cannot load library "/srv/some body/npu/libcompiler.so"', onw("doctor", **words).stdout)
        report = onw("doctor", "--report", **words).stdout
        self.assertIn('Cannot load library "libcompiler.so": no such file in', report)
        self.assertNotIn("srv", report)
        self.assertNotIn("some body/", report)

    def test_a_report_names_no_folder_however_it_is_called(self):
        for name in ("it's mine", 'a "quoted" one', "with: a colon", "tab\there", "semi, comma", "naïve ünï"):
            with tempfile.TemporaryDirectory() as top:
                place = pathlib.Path(top, name)
                place.mkdir()
                (place / "libopenvino_c.so").symlink_to(FAKE)
                words = dict(ONW_OPENVINO_DIR=place, HOME=place / "home", ONW_HOME=place / "models of mine", ONW_CACHE=place / "cache",
                             ONW_DEVICE=place / "device", ONW_FAKE_OPENVINO=f"compile=fail;says=cannot open {place}/plugins/libx.so: no")
                self.assertIn(str(place), onw("doctor", **words).stdout)
                report = onw("doctor", "--report", **words).stdout
                self.assertIn("libx.so", report)
                for part in (top, name, "models of mine", "plugins"):
                    self.assertNotIn(part, report)

    def test_who_asks_for_a_device_that_does_not_work_is_told_what_to_do(self):
        for script, said in (("version=2023.3.0", "onw needs 2025.0 or later"), ("core=fail", "no plugins.xml"),
                             ("compile=fail", "Compiler returned an error")):
            done = self.chat(script, "--device", "NPU")
            self.assertEqual(done.returncode, 1, script + done.stderr)
            self.assertIn(said, done.stderr)

    def test_a_compiler_that_crashes_is_an_error_for_whoever_waits_for_it(self):
        with tempfile.TemporaryDirectory() as cache:
            words = dict(ONW_OPENVINO_DIR=self.folder.name, ONW_NPU_STAND_IN="CPU", ONW_CACHE=cache)
            found = onw("chat", "tiny", "--prompt", "abc", "--max-tokens", 1, "--device", "NPU", **words)
            self.assertEqual(found.returncode, 0, found.stderr)  # the device works, and is believed from here on
            shutil.rmtree(pathlib.Path(cache, "blobs"), ignore_errors=True)
            for _ in range(2):  # what was tried is not tried again, and said again
                done = onw("bench", "tiny", "--device", "NPU", "--prompt", 0, "--decode", 1, "--no-load",
                           ONW_FAKE_OPENVINO="compile=crash", **words)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn("the compiler crashed", done.stderr)

    def chat_until(self, said, script):
        """Asks the same again and again until stderr says so. Every answer must be the CPU's."""
        answer = self.answers_of_the_cpu(1)
        with tempfile.TemporaryDirectory() as folder:
            out, err = pathlib.Path(folder, "out"), pathlib.Path(folder, "err")
            environment = harness.environment(ONW_OPENVINO_DIR=self.folder.name, ONW_FAKE_OPENVINO=script, ONW_NPU_STAND_IN="CPU",
                                              ONW_CACHE=folder)
            words = [harness.ONW, "chat", "tiny", "--max-tokens", "16", "--temperature", "0"]
            with open(out, "wb") as stdout, open(err, "wb") as stderr:
                chat = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, env=environment)
                deadline = time.monotonic() + 60
                while not re.search(said, err.read_text(errors="replace")) and time.monotonic() < deadline:
                    chat.stdin.write(b"abc\n/clear\n")
                    chat.stdin.flush()
                    time.sleep(0.05)
                chat.stdin.close()
                self.assertEqual(chat.wait(60), 0, err.read_text(errors="replace"))
            self.assertRegex(err.read_text(errors="replace")[-4000:], said)
            text = out.read_text(errors="replace")
            self.assertEqual(text, answer * (len(text) // len(answer)))

    def test_a_device_that_computes_something_else_is_not_believed(self):
        self.chat_until(r"The CPU answers, without the NPU: the NPU computes something else than the CPU \(KL ", "infer=wrong")

    def test_a_device_that_vanishes_at_once_is_told(self):
        self.chat_until("The CPU answers, without the NPU: .*DEVICE_LOST", "infer=lost;infer.from=2")


if __name__ == "__main__":
    harness.main()
