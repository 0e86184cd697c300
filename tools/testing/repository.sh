#!/usr/bin/env bash
# The checks of the repository, and the tests of those checks and of the test tools.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
status=0
tools/check_repo.py || status=1
tools/testing/scripts.py tools tools/testing || status=1
exit $status
