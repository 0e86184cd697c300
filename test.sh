#!/usr/bin/env bash
# Runs the tests: ./test.sh [--quick] [STAGE ...]
#
# Installs what is missing, builds, and runs the stages of tests/stages.tsv in order. --quick: those marked quick, under two
# minutes after a build. Ends with one line `N passed, N failed, N skipped`; every skip says why. Exit code 1 where one failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
started=$SECONDS

. tools/setup/install.sh
case " $* " in
  *" --help "* | *" -h "*) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;;
esac
install_missing test
choose_compiler || fail "no C++ compiler: clang 14 or newer, or g++ 11 or newer"
export CC CXX
say "set-up: compiler $CXX, $((SECONDS - started)) s"
exec python3 tools/testing/run_stages.py "$@"
