"""Counts of test results, and how they are read from what a test program prints."""
import re

OURS = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?\s*$", re.M)
UNITTEST = re.compile(r"^Ran (\d+) tests? in [^\n]*\n+(OK|FAILED)(?: \(([^)]*)\))?", re.M)
GTEST = re.compile(r"^\[  (PASSED|SKIPPED|FAILED) ?\s*\] (\d+) tests?\b", re.M)
SKIP = re.compile(r"^SKIP (.+)$", re.M)
UNITTEST_SKIP = re.compile(r"^(test_\w+) \([^\n]*\.\.\. skipped ['\"](.+)['\"]$", re.M)


class Counts:
    def __init__(self, passed=0, failed=0, skips=(), faults=()):
        self.passed, self.failed, self.skips, self.faults = passed, failed, list(skips), list(faults)

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skips += other.skips
        self.faults += other.faults

    def summary(self):
        return f"{self.passed} passed, {self.failed} failed, {len(self.skips)} skipped"


def parse(text, code, name):
    """The counts of a program that printed `text` and ended with `code`.

    Our own line wins over unittest's and GoogleTest's summaries, which the same program may print before it. A program that fails without counting a failure, or that counts nothing, is one failed test: nothing is lost silently.
    """
    total, skipped = Counts(), 0
    for passed, failed, skips in OURS.findall(text):
        total.add(Counts(int(passed), int(failed)))
        skipped += int(skips or 0)
    for ran, _, details in [] if OURS.search(text) else UNITTEST.findall(text):
        numbers = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", details)}
        failed = numbers.get("failures", 0) + numbers.get("errors", 0)
        total.add(Counts(int(ran) - failed - numbers.get("skipped", 0), failed))
        skipped += numbers.get("skipped", 0)
    for what, count in [] if OURS.search(text) else GTEST.findall(text):
        total.passed += int(count) if what == "PASSED" else 0
        total.failed += int(count) if what == "FAILED" else 0
        skipped += int(count) if what == "SKIPPED" else 0
    reasons = SKIP.findall(text) + [f"{test}: {why}" for test, why in UNITTEST_SKIP.findall(text)]
    total.skips = [f"{name}: {why}" for why in reasons][:skipped]
    total.skips += [f"{name}: no reason was printed"] * (skipped - len(total.skips))
    total.faults = [f"{name}: {line}" for line in re.findall(r"^(?:FAIL|ERROR:) ?(.+)$", text, re.M)]
    if code != 0 and total.failed == 0:
        total.add(Counts(failed=1, faults=[f"{name}: exit code {code}"]))
    elif total.passed + total.failed + skipped == 0:
        total.add(Counts(failed=1, faults=[f"{name}: no test ran"]))
    return total
