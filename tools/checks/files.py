"""The files that belong to the project: what git tracks, and what it would track."""
import functools
import re
import subprocess

CPP = (".cpp", ".h", ".inc", ".c")
TEST = re.compile(r"(_test|_bench|_fuzz)\.cpp$|^(tests|bench)/|/testing/|/tiny_\w+\.h$")


@functools.lru_cache(maxsize=None)
def tracked(root):
    """Paths relative to root, as strings with '/', sorted."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.decode().split("\0")
    return sorted({name for name in listed if name and (root / name).is_file()})


def cpp(root):
    return [name for name in tracked(root) if name.endswith(CPP)]


def is_test(name):
    """Tests, fuzz targets and benchmarks may see every room and the operating system."""
    return TEST.search(name) is not None


@functools.lru_cache(maxsize=None)
def read(root, name):
    return (root / name).read_text(encoding="utf-8", errors="replace")


TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^()\\ ]{0,16})\(.*?\)(?P=tag)"|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)+\'', re.S)


def code_only(source):
    """C++ without comments and literals, line numbers kept. Quoted includes stay readable with `read`."""
    return TOKEN.sub(lambda m: '""' + "\n" * m.group().count("\n") if m.group()[0] in "R\"" else "\n" * m.group().count("\n"),
                     source)
