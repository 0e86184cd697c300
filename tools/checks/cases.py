"""Every fault of tests/cases.tsv has a test that carries its id, or a stated reason why it has none yet.

A test carries an id by a comment beside it: `// hub-138` (several ids on a line are fine).
"""
import re

from . import files

TABLE = "tests/cases.tsv"
REQUIRED = {"tokenizer", "text-stream", "formats", "hub", "context", "numerics", "platform"}
CARRIES = re.compile(r"(_test\.cpp|_fuzz\.cpp|_test\.py|_test\.sh|\.rs)$|^tests/(?!cases\.tsv)")
TEST_NAME = re.compile(r"TEST(?:_[FP])?\s*\(\s*(\w+)\s*,\s*(\w+)|def (test_\w+)|fn (\w+)")


def rows(text):
    """id, promise, reason of each row; the first line names the columns."""
    for line in text.split("\n")[1:]:
        if line.strip():
            yield (line.split("\t") + ["", ""])[:3]


def kind(case):
    return re.split(r"/|-\d", case)[0]


def carriers(root, ids):
    """id -> names of the tests that carry it: the test that follows the comment, or the file."""
    found = {}
    short = {case.split("/")[-1]: case for case in ids}  # `tokenizer/template-030` may be written `template-030`
    pattern = re.compile(r"(?<![\w-])(" + "|".join(map(re.escape, sorted({*ids, *short}, key=len, reverse=True))) + r")(?!\w)")
    for name in files.tracked(root):
        if not CARRIES.search(name):
            continue
        source = files.read(root, name)
        for match in pattern.finditer(source):
            found.setdefault(short.get(match.group(1), match.group(1)), []).append(f"{name}: {test_at(source, match.start()) or name}")
    return found


def test_at(source, place):
    """The test that a comment at `place` belongs to: the next one where it begins its line, else the one it stands in."""
    line = source.rfind("\n", 0, place) + 1
    tests = list(TEST_NAME.finditer(source))
    if source[line] in "/#":
        tests = [t for t in tests if t.start() > place][:1]
    else:
        tests = [t for t in tests if t.start() < place][-1:]
    return ".".join(filter(None, tests[0].groups())) if tests else None


def run(report, root, _build):
    if not (root / TABLE).exists():
        report.skip("every case has a test or a reason", f"no {TABLE}")
        return
    table = list(rows(files.read(root, TABLE)))
    ids = [case for case, _, _ in table]
    carried = carriers(root, ids)
    twice = sorted({case for case in ids if ids.count(case) > 1})
    report.check("case ids are unique and described", [f"{c} stands twice" for c in twice] +
                 [f"{c} has no description" for c, promise, _ in table if not promise.strip()], f"{len(ids)} cases")
    open_cases = [f"{case}: {promise}" for case, promise, reason in table
                  if kind(case) in REQUIRED and not reason.strip() and case not in carried]
    reasons = sum(1 for case, _, reason in table if reason.strip() and case not in carried)
    report.check("every case has a test or a reason", open_cases, f"{len(carried)} with a test, {reasons} with a reason")
