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
# The programs that the sanitisers have been through. The others are named with what stands between, and count as skipped.
clean=(base_tests graph_tests models_tests passes_tests hub_tests store_tests convert_tests text_tests runtime_tests
       server_tests cli_tests)
fuzzers=$(basename -s .cpp -a ./*/*_fuzz.cpp)
if tools/testing/build.sh $preset "${clean[@]}" $fuzzers; then
  tools/testing/gtests.py build/$preset --seconds 900 --only "${clean[@]}" || status=1
else
  status=1
fi
for program in kernels_tests quant_tests targets_tests tests_tests; do
  echo "SKIP $program under AddressSanitizer: not yet gone through as a whole"
done
echo "0 passed, 0 failed, 4 skipped"
# Rooms in which threads meet.
if tools/testing/build.sh tsan base_tests server_tests; then
  tools/testing/gtests.py build/tsan --seconds 900 --only base_tests server_tests || status=1
else
  status=1
fi
for program in runtime_tests; do
  echo "SKIP $program under ThreadSanitizer: not yet gone through in its present form"
done
echo "0 passed, 0 failed, 1 skipped"
exit $status
