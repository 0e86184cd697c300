"""What the project's text must not contain: paths of a machine, registry hosts, leftovers of a merge or of unfinished work."""
import re

from . import files

RULES = [
    ("no path of one machine", r"(?<![\w.$}~-])/(work|root|farm|home/[a-z]\w*)/\w"),
    ("no host of a package registry",
     r"pypi[.]org|pythonhosted[.]org|npmjs[.](org|com)|static[.]crates|crates[.]io|\b(deb|security|ftp)[.]debian[.]org|"
     r"(archive|security)[.]ubuntu[.]com|proxy[.]golang[.]org|repo1?[.]maven"),
    ("no word of unfinished work", r"\b(TODO|FIXME|XXX|HACK)\b"),
    ("no reference to a document that is not here", r"\b(DESIGN|NAMES|MODELS|CASES|STYLE|NPU)(\.md\b| §| \d)"),
    ("no merge conflict", r"^(<{7}|>{7}) "),
]
GENERATED = re.compile(r"(\.lock|package-lock\.json)$")  # written by tools, with addresses of their own
BYTES = 3_000_000


def is_text(root, name):
    return b"\0" not in (root / name).read_bytes()[:4096]


def run(report, root, _build):
    names = [n for n in files.tracked(root) if not GENERATED.search(n) and is_text(root, n)]
    for title, pattern in RULES:
        rule = re.compile(pattern, re.M)
        found = []
        for name in names:
            if name == "tools/checks/text.py":  # holds the rules themselves
                continue
            for number, line in enumerate(files.read(root, name).split("\n"), 1):
                if rule.search(line):
                    found.append(f"{name}:{number}: {line.strip()[:120]}")
        report.check(title, found, f"{len(names)} files")
    large = ((n, (root / n).stat().st_size) for n in files.tracked(root))
    report.check(f"no file over {BYTES} bytes", (f"{n}: {s} bytes" for n, s in large if s > BYTES), f"{len(files.tracked(root))} files")
