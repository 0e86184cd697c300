#!/usr/bin/env bash
# Configures and builds a preset: build.sh PRESET [TARGET ...]. Targets that the tree does not have are left out. Counts as one test.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tools/setup/install.sh
preset=$1
shift
choose_compiler || fail "no C++ compiler"
{
  { [ -f "build/$preset/build.ninja" ] || cmake --preset "$preset" -DCMAKE_C_COMPILER="$CC" -DCMAKE_CXX_COMPILER="$CXX"; } &&
    if [ $# -gt 0 ]; then
      known=$(ninja -C "build/$preset" -t targets all | cut -d: -f1)
      targets=$(for target in "$@"; do printf '%s\n' "$known" | grep -Fx "$target"; done)
      [ -z "$targets" ] || ninja -C "build/$preset" $targets
    else
      ninja -C "build/$preset"
    fi
} 2>&1 || {
  echo "FAIL build of $preset"
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
}
echo "1 passed, 0 failed, 0 skipped"
