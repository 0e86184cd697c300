#!/usr/bin/env python3
"""The repository checks find what they are there to find. Each test lays a small repository and runs one check on it."""
import contextlib
import io
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from checks import binary, cases, files, includes, sources, text  # noqa: E402
from checks.report import Report  # noqa: E402


def outcome(check, contents):
    """The printed lines of `check` on a repository with these files."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        subprocess.run(["git", "init", "-q", str(root)], check=True)
        for name, content in contents.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(content)
        files.tracked.cache_clear()
        files.read.cache_clear()
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            check(Report(), root, root / "build")
        return printed.getvalue()


def failures(check, contents):
    return [line for line in outcome(check, contents).splitlines() if line.startswith("FAIL")]


class Includes(unittest.TestCase):
    FILES = {"hub/pull.h": "", "base/result.h": "", "graph/op.h": ""}

    def test_an_include_along_the_arrows_passes(self):
        self.assertEqual(failures(includes.run, {**self.FILES, "hub/a.cpp": '#include "base/result.h"\n'}), [])

    def test_an_include_against_the_arrows_fails(self):
        self.assertEqual(len(failures(includes.run, {**self.FILES, "base/a.cpp": '#include "hub/pull.h"\n'})), 1)

    def test_an_arrow_allows_everything_behind_it(self):
        self.assertEqual(failures(includes.run, {**self.FILES, "runtime/a.cpp": '#include "graph/op.h"\n'}), [])

    def test_tests_see_all(self):
        self.assertEqual(failures(includes.run, {**self.FILES, "base/a_test.cpp": '#include "hub/pull.h"\n'}), [])


class Sources(unittest.TestCase):
    def test_each_rule_finds_its_fault(self):
        for content in ("#include <immintrin.h>", "#include <unistd.h>", "#ifdef __linux__\n#endif", "int* p = new int(3);",
                        "void f(int* p) { delete p; }", "int a;\n" * 700):
            self.assertEqual(len(failures(sources.run, {"hub/a.cpp": content})), 1, content[:40])

    def test_comments_strings_and_deleted_functions_are_no_faults(self):
        code = '// a new word, delete it\nconst char* s = "new int";\nstruct A { A(const A&) = delete; };\n'
        self.assertEqual(failures(sources.run, {"hub/a.cpp": code}), [])

    def test_json_stays_out_of_headers(self):
        self.assertEqual(len(failures(sources.run, {"hub/a.h": "#pragma once\n#include <nlohmann/json.hpp>\n"})), 1)


class Text(unittest.TestCase):
    def test_a_path_of_a_machine_fails(self):
        self.assertEqual(len(failures(text.run, {"README.md": "see /wo" + "rk/notes"})), 1)

    def test_a_path_of_every_machine_passes(self):
        self.assertEqual(failures(text.run, {"README.md": "see /usr/share, ~/work/x and models/work/y"}), [])


class Cases(unittest.TestCase):
    TABLE = "id\tpromise\twhy\nhub-1\tit holds\t\n"

    def test_a_case_without_test_or_reason_fails(self):
        self.assertEqual(len(failures(cases.run, {"tests/cases.tsv": self.TABLE})), 1)

    def test_a_test_that_carries_the_id_is_enough(self):
        self.assertEqual(failures(cases.run, {"tests/cases.tsv": self.TABLE, "hub/a_test.cpp": "// hub-1\nTEST(A, b) {}"}), [])

    def test_a_longer_id_is_another_id(self):
        self.assertEqual(len(failures(cases.run, {"tests/cases.tsv": self.TABLE, "hub/a_test.cpp": "// hub-12\nTEST(A, b) {}"})), 1)


class Instructions(unittest.TestCase):
    def test_what_an_old_cpu_does_not_know_is_beyond(self):
        for name in ("vaddps", "vpdpbusd", "vmovdqu8", "vzeroupper", "kmovq", "shlx", "mulx", "tdpbusd", "vmulps"):
            self.assertTrue(binary.BEYOND.match(name), name)

    def test_the_baseline_is_not(self):
        for name in ("movaps", "addps", "verr", "vmcall", "cpuid", "xgetbv", "pause", "sysenter"):
            self.assertFalse(binary.BEYOND.match(name), name)


if __name__ == "__main__":
    unittest.main()
