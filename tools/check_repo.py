#!/usr/bin/env python3
"""Checks the repository itself: layering, what may appear where, the linked program, the kernels' inner loops, text rules, the case table, format.

    tools/check_repo.py [--only NAME ...] [--build DIR] [--record]

Every check prints one `ok`, `FAIL` or `SKIP` line with what it counted; the last line is `N passed, N failed, N skipped`.
"""
import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from checks import binary, cases, format_check, includes, loops, sources, text  # noqa: E402
from checks.report import Report  # noqa: E402

CHECKS = {
    "includes": includes.run,
    "sources": sources.run,
    "text": text.run,
    "cases": cases.run,
    "format": format_check.run,
    "binary": binary.run,
    "loops": loops.run,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=sorted(CHECKS), help="run these checks only")
    parser.add_argument("--build", default="build/release", help="build directory whose objects and program are read")
    parser.add_argument("--record", action="store_true", help="keep this build's counts of kernel loops as the known ones")
    options = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parent.parent
    report = Report()
    for name, check in CHECKS.items():
        if not options.only or name in options.only:
            arguments = {"record": True} if options.record and name == "loops" else {}
            check(report, root, root / options.build, **arguments)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
