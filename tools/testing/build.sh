#!/usr/bin/env bash
# Configures and builds a preset: build.sh PRESET [TARGET ...]. Counts as one test.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tools/setup/install.sh
preset=$1
shift
choose_compiler || fail "no C++ compiler"
{
  { [ -f "build/$preset/build.ninja" ] || cmake --preset "$preset" -DCMAKE_C_COMPILER="$CC" -DCMAKE_CXX_COMPILER="$CXX"; } &&
    ninja -C "build/$preset" "$@"
} 2>&1 || {
  echo "FAIL build of $preset"
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
}
echo "1 passed, 0 failed, 0 skipped"
