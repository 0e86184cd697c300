#!/usr/bin/env python3
"""The counts of a test run are right: nothing that fails, crashes or is skipped is lost."""
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from counts import parse  # noqa: E402
from gtests import read_results  # noqa: E402


def numbers(text, code=0):
    counts = parse(text, code, "x")
    return counts.passed, counts.failed, len(counts.skips)


class Parse(unittest.TestCase):
    def test_our_own_line_counts(self):
        self.assertEqual(numbers("SKIP a: why\n3 passed, 0 failed, 1 skipped\n"), (3, 0, 1))

    def test_several_lines_add_up(self):
        self.assertEqual(numbers("1 passed, 0 failed, 0 skipped\n2 passed, 1 failed, 0 skipped\n", 1), (3, 1, 0))

    def test_unittest_counts(self):
        self.assertEqual(numbers("Ran 5 tests in 0.1s\n\nOK (skipped=1)\n"), (4, 0, 1))
        self.assertEqual(numbers("Ran 5 tests in 0.1s\n\nFAILED (failures=1, errors=1)\n", 1), (3, 2, 0))

    def test_googletest_counts(self):
        self.assertEqual(numbers("[  PASSED  ] 2 tests.\n"), (2, 0, 0))
        self.assertEqual(numbers("[  PASSED  ] 1 test.\n[  SKIPPED ] 1 test, listed below:\n[  SKIPPED ] A.b\n[  FAILED  ] 2 tests, listed below:\n", 1), (1, 2, 1))

    def test_the_same_tests_are_not_counted_twice(self):
        self.assertEqual(numbers("Ran 5 tests in 0.1s\n\nOK (skipped=1)\nSKIP a: why\n4 passed, 0 failed, 1 skipped\n"), (4, 0, 1))

    def test_the_reasons_of_unittest_are_kept(self):
        text = "test_a (x.A.test_a) ... ok\ntest_b (x.A.test_b) ... skipped 'no such thing'\n\nRan 2 tests in 0.1s\n\nOK (skipped=1)\n"
        self.assertEqual(parse(text, 0, "x").skips, ["x: test_b: no such thing"])

    def test_a_crash_after_passing_tests_is_a_failure(self):
        self.assertEqual(numbers("3 passed, 0 failed, 0 skipped\n", 139), (3, 1, 0))

    def test_no_test_at_all_is_a_failure(self):
        self.assertEqual(numbers(""), (0, 1, 0))

    def test_a_skip_without_a_reason_says_so(self):
        self.assertIn("no reason", parse("0 passed, 0 failed, 1 skipped\n", 0, "x").skips[0])


# As GoogleTest 1.12 prints it. Its report holds no reason.
PRINTED = """[----------] 4 tests from A
[ RUN      ] A.plain
a.cpp:2: Skipped
no such thing
in two lines

[  SKIPPED ] A.plain (0 ms)
[ RUN      ] A.after_a_word
a wordb.cpp:4: Skipped
too small
[  SKIPPED ] A.after_a_word (0 ms)
[ RUN      ] A.of_another/0
[       OK ] A.of_another/0 (0 ms)
[ RUN      ] A.silent
a.cpp:8: Skipped

[  SKIPPED ] A.silent (0 ms)
[ RUN      ] A.twice
a.cpp:9: Skipped
one
a.cpp:10: Skipped
two
[  SKIPPED ] A.twice (0 ms)
[  SKIPPED ] 4 tests, listed below:
[  SKIPPED ] A.plain
"""


class GoogleTestReport(unittest.TestCase):
    def skips(self, tests, printed):
        report = {"testsuites": [{"name": "A", "testsuite": [{"result": "SKIPPED"} | test for test in tests]}]}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "report.json"
            path.write_text(json.dumps(report))
            return read_results(path, printed).skips

    def test_reasons_that_only_the_program_prints_are_kept(self):
        names = ["plain", "after_a_word", "silent", "twice", "never_printed"]
        self.assertEqual(self.skips([{"name": name} for name in names], PRINTED), [
            "A.plain: no such thing in two lines", "A.after_a_word: too small", "A.silent: no reason was printed", "A.twice: one; two",
            "A.never_printed: no reason was printed"])

    def test_the_report_wins(self):
        test = {"name": "plain", "skipped": [{"message": "a.cpp:2\nby the report\n"}]}
        self.assertEqual(self.skips([test], PRINTED), ["A.plain: by the report"])


if __name__ == "__main__":
    unittest.main()
