#!/usr/bin/env python3
"""The repository checks find what they are there to find. Each test lays a small repository and runs one check on it."""
import contextlib
import io
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from checks import binary, cases, files, includes, loops, sources, text  # noqa: E402
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

    def test_a_wide_instruction_outside_kernels_is_found_in_a_program(self):
        compiler = shutil.which("cc") or shutil.which("clang-19") or shutil.which("clang")
        if compiler is None or not shutil.which("objdump"):
            self.skipTest("no compiler or no objdump")
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "a.o"
            code = 'void kernel(void) { __asm__("vpaddd %zmm0, %zmm1, %zmm2"); }\nvoid plain(void) { __asm__("tilerelease"); }\n'
            subprocess.run([compiler, "-x", "c", "-c", "-", "-o", str(program)], input=code, text=True, check=True)
            self.assertEqual(list(binary.beyond_baseline(program, {"kernel"})[0]), ["plain"])


class Loops(unittest.TestCase):
    """Disassembly as objdump prints it, a loop in a loop."""
    OUTER = """0000000000000000 <void a::(anonymous namespace)::tile<(a::Dot)1, 7>(a::Group const&, float*)>:
       0:\tvmovaps 0x40(%rsp),%zmm1
       4:\tvpdpbusd %zmm0,%zmm1,%zmm2
       8:\tvpbroadcastd (%rax,%rcx,1),%zmm3
       c:\t{vex} vpdpbusd (%rdi),%ymm4,%ymm5
      10:\tvpdpbusd %zmm0,%zmm1,%zmm2
      14:\tSPILL
      18:\tjb     8 <void a::tile+0x8>
      1c:\tjne    0 <void a::tile>
      20:\tret
"""

    def counted(self, spill="nop"):
        return {name: loops.counts(loops.inner_loop(i)) for name, i in loops.functions(self.OUTER.replace("SPILL", spill).splitlines()).items()}

    def test_the_loop_with_most_dot_products_of_its_own_is_counted(self):
        self.assertEqual(self.counted(), {"tile<1, 7>": (2, 5, 2, 0)})

    def test_a_spill_is_a_move_of_a_vector_to_or_from_the_stack(self):
        for move in ("vmovups %zmm1,0x40(%rsp)", "vmovdqa64 -0x80(%rsp),%zmm1", "movaps %xmm1,(%rsp)"):
            self.assertEqual(self.counted(move)["tile<1, 7>"][3], 1, move)
        for move in ("mov    %rax,0x8(%rsp)", "vmovups %zmm1,0x40(%rax)", "vmovups %zmm1,0x40(%rsp,%rax,1)"):
            self.assertEqual(self.counted(move)["tile<1, 7>"][3], 0, move)

    def worse(self, known, measured):
        key = ("clang 19", "panel_avx512vnni", "tile<12, 7>")
        return len(list(loops.findings({key: known}, {key: measured})))

    def test_a_count_that_rises_is_a_finding(self):
        self.assertEqual(self.worse((24, 40, 14, 0), (24, 40, 14, 0)), 0)
        self.assertEqual(self.worse((24, 40, 14, 0), (24, 39, 13, 0)), 0)
        self.assertEqual(self.worse((24, 40, 14, 0), (24, 41, 14, 0)), 1)
        self.assertEqual(self.worse((24, 40, 14, 0), (24, 44, 16, 2)), 3)

    def test_counts_are_per_dot_product(self):
        self.assertEqual(self.worse((24, 40, 14, 0), (48, 78, 28, 0)), 0)
        self.assertEqual(self.worse((24, 40, 14, 0), (12, 40, 14, 0)), 2)

    def test_a_function_without_counts_is_a_finding_and_the_table_reads_back(self):
        table = {("clang 19", "a", "f"): (1, 2, 3, 4)}
        self.assertEqual(loops.read_table(loops.table_text(table)), table)
        self.assertEqual(len(list(loops.findings({}, table))), 1)


if __name__ == "__main__":
    unittest.main()
