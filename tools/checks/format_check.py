"""C++ is formatted as .clang-format says."""
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

from . import files

TOOL = "clang-format-19"  # one version: others break lines differently


def badly_formatted(root, name):
    path = root / name
    done = subprocess.run([TOOL, "--style=file", str(path)], stdout=subprocess.PIPE, check=True, cwd=root)
    return name if done.stdout != path.read_bytes() else None


def run(report, root, _build):
    title = "C++ is formatted"
    if not shutil.which(TOOL):
        report.skip(title, f"{TOOL} is not installed")
        return
    names = [n for n in files.cpp(root) if not n.endswith(".inc")]
    with ThreadPoolExecutor(2) as pool:
        bad = [n for n in pool.map(lambda n: badly_formatted(root, n), names) if n]
    report.check(title, (f"{n}: run {TOOL} -i {n}" for n in bad), f"{len(names)} files")
