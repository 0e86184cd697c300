"""What the end-to-end scripts share: running onw, a converted tiny model, and the last line.

ONW is the program (default build/release/onw). Every script has an ONW_HOME and ONW_CACHE of its own.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import tiny_hf

ROOT = pathlib.Path(__file__).resolve().parents[2]
ONW = os.environ.get("ONW") or str(ROOT / "build" / "release" / "onw")
FOLDER = tempfile.TemporaryDirectory(prefix="onw-e2e-")
HOME = pathlib.Path(FOLDER.name) / "home"


def environment(**changes):
    """The caller's environment without what would change a test, and with a home of our own."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("ONW_") and "proxy" not in k.lower()}
    clean |= {"ONW_HOME": str(HOME), "ONW_CACHE": str(pathlib.Path(FOLDER.name) / "cache"), "LC_ALL": "C.UTF-8"}
    return clean | {k: str(v) for k, v in changes.items()}


def onw(*words, stdin=b"", timeout=120, cwd=None, **changes):
    """Runs onw to its end: a CompletedProcess with text."""
    done = subprocess.run([ONW, *map(str, words)], input=stdin if isinstance(stdin, bytes) else stdin.encode(),
                          capture_output=True, timeout=timeout, cwd=cwd, env=environment(**changes))
    done.stdout, done.stderr = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    return done


def openvino_folder():
    """The folder with OpenVINO's libraries: ONW_OPENVINO_DIR, or the wheel of the Python that runs this."""
    given = os.environ.get("ONW_OPENVINO_DIR")
    if given:
        return given
    found = sorted(pathlib.Path(sys.prefix).glob("lib/python3*/site-packages/openvino"))
    return str(found[-1]) if found else None


NO_OPENVINO = "OpenVINO is not on this machine: run ./test.sh, which installs it into build/venv, or set ONW_OPENVINO_DIR"


def converted_model(name="tiny", **options):
    """A tiny model in the store under `name`: its answers are noise, but always the same. Options: tiny_hf.files."""
    published = tiny_hf.write(pathlib.Path(FOLDER.name) / "published" / name, **options)
    out = HOME / "models" / name
    done = onw("convert", published, out)
    if done.returncode != 0:
        raise RuntimeError(f"the tiny model could not be converted:\n{done.stderr}")
    return out


class Result(unittest.TextTestResult):
    passed = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1


def main():
    """Runs the tests of the calling module; the last line is `N passed, N failed, N skipped`."""
    if not os.access(ONW, os.X_OK):
        print(f"SKIP {pathlib.Path(sys.argv[0]).name}: {ONW} is not built\n0 passed, 0 failed, 1 skipped")
        sys.exit(0)
    tests = unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"])
    if len(sys.argv) > 1:
        tests = unittest.defaultTestLoader.loadTestsFromNames(sys.argv[1:], sys.modules["__main__"])
    result = unittest.TextTestRunner(resultclass=Result, verbosity=1).run(tests)
    for test, why in result.skipped:
        print(f"SKIP {test}: {why}")
    failed = len(result.failures) + len(result.errors)
    print(f"{result.passed} passed, {failed} failed, {len(result.skipped)} skipped")
    sys.exit(1 if failed else 0)
