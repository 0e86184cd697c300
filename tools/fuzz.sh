#!/usr/bin/env bash
# Runs every libFuzzer target from its seeds in tests/corpus, two at a time.
#
#   tools/fuzz.sh [SECONDS] [TARGET...]     default: 3600 seconds for each target
#   tools/fuzz.sh 60                        the short run of ./test.sh
#
# New inputs are kept in build/fuzz/corpus, so a later run goes on from there. A finding stops its target; its input is left in
# build/fuzz/findings. Ends with one line per target; exit code 1 if any found something. Needs clang.
set -u
cd "$(dirname "$0")/.."
seconds=${1:-3600}
[ $# -gt 0 ] && shift
compiler=(${CXX:+-DCMAKE_CXX_COMPILER=$CXX} ${CC:+-DCMAKE_C_COMPILER=$CC})
if [ -z "${CXX:-}" ]; then
  for version in 19 18 17 16 15 14; do
    command -v "clang++-$version" >/dev/null && compiler=(-DCMAKE_CXX_COMPILER=clang++-$version -DCMAKE_C_COMPILER=clang-$version) && break
  done
fi
cmake --preset fuzz "${compiler[@]}" >/dev/null || { echo "fuzz: cmake failed. libFuzzer needs clang: apt install clang" >&2; exit 1; }
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  mapfile -t targets < <(find . -name '*_fuzz.cpp' -not -path './build*' -exec basename {} \; | sed 's/\.cpp$//' | sort)
fi
ninja -C build/fuzz "${targets[@]}" >build/fuzz/build.log || { tail -n 30 build/fuzz/build.log >&2; exit 1; }

run() {  # one target
  local target=$1 kept=build/fuzz/corpus/$1 findings=build/fuzz/findings/$1-
  mkdir -p "$kept" build/fuzz/findings "tests/corpus/$target"
  if build/fuzz/"$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -artifact_prefix="$findings" \
      "$kept" "tests/corpus/$target" >"build/fuzz/$target.log" 2>&1; then
    echo "$target: nothing found in $seconds s ($(grep -oE '^#[0-9]+' "build/fuzz/$target.log" | tail -n 1 | tr -d '#') inputs)"
  else
    echo "$target: FOUND SOMETHING, see build/fuzz/$target.log and $findings*"
    return 1
  fi
}
export -f run
export seconds
printf '%s\n' "${targets[@]}" | xargs -P 2 -I{} bash -c 'run {}'
