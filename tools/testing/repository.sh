#!/usr/bin/env bash
# The checks of the repository, and the tests of those checks, of the test tools and of the scripts of tools/ and bench/.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
status=0
tools/check_repo.py || status=1
tools/testing/scripts.py tools tools/testing bench || status=1
exit $status
