"""Includes go one way: the arrows between rooms."""
import re

from . import files

ARROWS = {
    "cli": ["server", "runtime", "text", "hub", "convert"],
    "server": ["runtime", "text", "hub", "convert"],
    "runtime": ["models", "targets", "store"],
    "targets": ["kernels", "passes", "quant", "store"],
    "convert": ["models", "quant", "store"],
    "models": ["graph"],
    "passes": ["graph"],
    "quant": ["graph"],
    "store": ["graph"],
    "kernels": ["quant", "base"],
    "graph": ["base"],
    "text": ["base"],
    "hub": ["base"],
    "base": [],
}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)


def behind(room):
    """The rooms that `room` may include: itself and everything behind its arrows."""
    seen, waiting = set(), [room]
    while waiting:
        current = waiting.pop()
        if current not in seen:
            seen.add(current)
            waiting += ARROWS[current]
    return seen


def run(report, root, _build):
    allowed = {room: behind(room) for room in ARROWS}
    against, missing, count = [], [], 0
    for name in files.cpp(root):
        room = name.split("/")[0]
        source = files.read(root, name)
        for match in INCLUDE.finditer(source):
            count += 1
            included = match.group(1)
            line = source[:match.start()].count("\n") + 1
            if not (root / included).is_file():
                missing.append(f'{name}:{line}: no file "{included}" (project includes start at the root)')
            if room in ARROWS and not files.is_test(name) and included.split("/")[0] not in allowed[room]:
                against.append(f'{name}:{line}: {room} may not include "{included}"')
    report.check("includes go one way between rooms", against, f"{count} includes")
    report.check("includes name files of the project", missing, f"{count} includes")
