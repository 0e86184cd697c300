#!/usr/bin/env bash
# The checks of the repository, and the tests of those checks and of the test tools.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
status=0
tools/check_repo.py || status=1
for tests in tools/checks_test.py tools/testing/testing_test.py; do python3 "$tests" 2>&1 || status=1; done
exit $status
