#!/usr/bin/env python3
"""onw convert from outside: memory, interruption, repetition."""
import pathlib
import shutil
import signal
import subprocess
import time
import unittest

import convert_memory
import harness
import tiny_hf

FOLDER = pathlib.Path(harness.FOLDER.name)


class ConvertTest(unittest.TestCase):
    # formats-136
    def test_memory_stays_within_the_largest_tensor_and_little_more(self):
        m = convert_memory.measure(harness.ONW, "q4g128", gigabytes=2)
        self.assertEqual(m["code"], 0, m["stderr"])
        self.assertTrue(m["finished"])
        self.assertLessEqual(m["peak"], m["limit"])

    def test_a_limit_that_is_too_small_is_noticed(self):
        m = convert_memory.measure(harness.ONW, "q4g128", gigabytes=1, limit=10 << 20)
        if not m["enforced"]:
            self.assertGreater(m["peak"], m["limit"])
        else:
            self.assertFalse(m["finished"])

    def test_killed_it_leaves_nothing_that_looks_finished_and_goes_on(self):
        folder = FOLDER / "killed"
        convert_memory.write_model(folder / "model", gigabytes=1)
        words = [harness.ONW, "convert", folder / "model", folder / "out"]
        run = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=harness.environment())
        deadline = time.time() + 60
        journal = folder / "out.partial" / "journal"
        while time.time() < deadline and run.poll() is None and not (journal.exists() and journal.read_text().count("\n") > 2):
            time.sleep(0.02)
        run.send_signal(signal.SIGKILL)
        run.wait()
        self.assertFalse((folder / "out").exists())
        self.assertFalse((folder / "out.partial" / "engine.json").exists())
        done = harness.onw("convert", folder / "model", folder / "out")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Going on", done.stderr)
        self.assertEqual(harness.onw("check", folder / "out", "--deep").returncode, 0)
        shutil.rmtree(folder)

    def test_a_folder_for_the_npu_answers_on_the_cpu_and_is_laid_out_once(self):
        tiny_hf.write(FOLDER / "both")
        for device in ("cpu", "npu"):
            done = harness.onw("convert", FOLDER / "both", FOLDER / device, "--for", device)
            self.assertEqual(done.returncode, 0, done.stderr)
        ask = ["--prompt", "What is it?", "--max-tokens", 24, "--temperature", 0]
        expected = harness.onw("chat", FOLDER / "cpu", *ask)
        self.assertEqual(expected.returncode, 0, expected.stderr)
        cache = FOLDER / "layouts"
        seen = []
        for _ in range(2):
            answer = harness.onw("chat", FOLDER / "npu", *ask, ONW_CACHE=cache)
            self.assertEqual(answer.returncode, 0, answer.stderr)
            self.assertEqual(answer.stdout, expected.stdout)
            seen.append({p: (p.stat().st_ino, p.stat().st_size) for p in cache.rglob("*.safetensors")})
        self.assertEqual(len(seen[0]), 1, seen)
        self.assertEqual(seen[0], seen[1])

    def test_a_folder_that_exists_is_not_touched(self):
        tiny_hf.write(FOLDER / "published")
        published = FOLDER / "published"
        self.assertEqual(harness.onw("convert", published, FOLDER / "once").returncode, 0)
        before = (FOLDER / "once" / "engine.json").read_bytes()
        again = harness.onw("convert", published, FOLDER / "once")
        self.assertEqual(again.returncode, 2)
        self.assertIn("exists already", again.stderr)
        self.assertEqual((FOLDER / "once" / "engine.json").read_bytes(), before)


if __name__ == "__main__":
    harness.main()
