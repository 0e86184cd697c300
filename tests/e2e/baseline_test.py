#!/usr/bin/env python3
"""The program on older processors, as qemu shows them: no illegal instruction, and the same answer everywhere."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import tiny_hf  # noqa: E402

ONW = os.environ.get("ONW", "build/release/onw")
QEMU = shutil.which("qemu-x86_64")


@unittest.skipUnless(QEMU, "qemu-x86_64 is not installed (package qemu-user)")
class OlderProcessors(unittest.TestCase):  # platform/ui-161
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder, True)
        tiny_hf.write(cls.folder / "published")

    def run_on(self, cpu, *arguments, **variables):
        """The finished process, on qemu's model of `cpu`, or on this machine's own."""
        env = {**os.environ, "ONW_HOME": str(self.folder / "home"), "ONW_CACHE": str(self.folder / "cache"), **variables}
        command = ([QEMU, "-cpu", cpu] if cpu else []) + [ONW, *map(str, arguments)]
        return subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)

    def answer_on(self, cpu, **variables):
        done = self.run_on(cpu, "chat", self.folder / "model", "--prompt", "Hello", "--max-tokens", "8", "--temperature", "0", **variables)
        self.assertEqual(done.returncode, 0, f"{cpu}: {done.stderr}")
        return done.stdout

    def convert(self, cpu):
        done = self.run_on(cpu, "convert", self.folder / "published", self.folder / "model", "--replace")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_without_avx_it_converts_and_says_what_it_has(self):
        self.convert("Nehalem")
        done = self.run_on("Nehalem", "doctor")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("AVX2", done.stdout)

    def test_a_model_answers_the_same_on_every_processor(self):
        self.convert(None)
        here = self.answer_on(None)
        self.assertEqual(self.answer_on(None, ONW_ISA="generic"), here)
        self.assertEqual(self.answer_on("Nehalem"), here)
        self.assertEqual(self.answer_on("Haswell"), here)


if __name__ == "__main__":
    unittest.main(verbosity=2)
