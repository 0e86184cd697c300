#!/usr/bin/env python3
"""The counts of a test run are right: nothing that fails, crashes or is skipped is lost."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from counts import parse  # noqa: E402


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


if __name__ == "__main__":
    unittest.main()
