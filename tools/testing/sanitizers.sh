#!/usr/bin/env bash
# Unit tests under AddressSanitizer and UndefinedBehaviorSanitizer, then those with threads under ThreadSanitizer.
# The first build (preset fuzz where clang is the compiler) also holds the fuzz targets.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
. tools/setup/install.sh
choose_compiler || fail "no C++ compiler"
preset=asan
case $CXX in clang*) preset=fuzz ;; esac
export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1
status=0
# Whole models run here in their smallest shapes only: the same code, a tenth of the arithmetic.
whole_models='tests_tests=-*EveryFormat*:LongContext*:BatchInvariance.threads*:*g128*:*g64*:*Conformance_window*:*EveryFamily*/2:*EveryFamily*/5:*EveryFamily*/8:*EveryFamily*/11:*EveryFamily*/12:*EveryFamily*/15'
if tools/testing/build.sh $preset; then
  tools/testing/gtests.py build/$preset --seconds 900 --filter "$whole_models" || status=1
else
  status=1
fi
# Rooms in which threads meet. A filter keeps long numeric tests out, which have one thread anyway.
threaded=(base_tests targets_tests=*hread*:*onformance*:*ool* runtime_tests server_tests)
if tools/testing/build.sh tsan "${threaded[@]%%=*}"; then
  tools/testing/gtests.py build/tsan --seconds 900 --only "${threaded[@]}" || status=1
else
  status=1
fi
exit $status
