"""What may appear where in C++: intrinsics, the operating system, conditionals, JSON, ownership, length."""
import re

from . import files

SYSTEM = re.compile(
    r"^\s*#\s*include\s*<((?:sys|linux|netinet|arpa|net|asm|mach)/[^>]+|unistd\.h|fcntl\.h|pthread\.h|sched\.h|signal\.h|"
    r"dlfcn\.h|poll\.h|termios\.h|dirent\.h|pwd\.h|spawn\.h|syslog\.h|[Ww]indows\.h|io\.h|process\.h|execinfo\.h|"
    r"hwloc[^>]*|liburing[^>]*)>", re.M)
INTRINSICS = re.compile(r"^\s*#\s*include\s*<([a-z0-9]*intrin\.h|cpuid\.h|arm_neon\.h)>", re.M)
CONDITIONAL = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif)\b[^\n]*", re.M)
JSON = re.compile(r"^\s*#\s*include\s*<nlohmann/json\.hpp>", re.M)
OPENVINO = re.compile(r"^\s*#\s*include\s*[<\"](openvino/[^>\"]+)", re.M)
# `unique_ptr<T>(new T(...))` is how a private constructor is reached.
OWNERSHIP = re.compile(r"(?<![\w:.])(?<!>\()new\s+[A-Za-z_(]|(?<!operator )(?<!= )\bdelete\b\s*(\[\])?\s*[A-Za-z_(*]")
LINES = 600


def find(root, names, pattern, say, code=False):
    for name in names:
        source = files.read(root, name)
        searched = files.code_only(source) if code else source
        for match in pattern.finditer(searched):
            line = searched[:match.start(0)].count("\n") + 1 + match.group(0)[:1].count("\n")
            yield f"{name}:{line}: {say.format(match.group(0).strip())}"


def run(report, root, _build):
    everything = files.cpp(root)
    product = [n for n in everything if not files.is_test(n)]
    outside = lambda *rooms: [n for n in product if not n.startswith(rooms)]  # noqa: E731
    counted = f"{len(product)} files"
    report.check("intrinsics only in kernels",
                 find(root, outside("kernels/", "base/cpu"), INTRINSICS, "{} outside kernels/"), counted)
    report.check("the operating system only in base",
                 find(root, outside("base/"), SYSTEM, "{}: put it behind a header of base/"), counted)
    report.check("conditional compilation only in base",
                 find(root, outside("base/"), CONDITIONAL, "{} (one file per system in base/, #pragma once in headers)"), counted)
    headers = [n for n in product if n.endswith(".h")]
    report.check("headers use nlohmann/json_fwd.hpp", find(root, headers, JSON, "{} in a header"), f"{len(headers)} headers")
    report.check("headers start with #pragma once",
                 (n for n in headers if "#pragma once" not in files.read(root, n)), f"{len(headers)} headers")
    report.check("OpenVINO only in targets/openvino", find(root, outside("targets/openvino/"), OPENVINO, "{}"), counted)
    report.check("no new, no delete", find(root, product, OWNERSHIP, "'{}'", code=True), counted)
    code = [n for n in files.tracked(root) if n.endswith(files.CPP + (".py", ".rs", ".sh", ".ts"))]
    lengths = ((n, files.read(root, n).count("\n")) for n in code)
    report.check(f"no source file over {LINES} lines", (f"{n}: {k} lines" for n, k in lengths if k > LINES), f"{len(code)} files")
