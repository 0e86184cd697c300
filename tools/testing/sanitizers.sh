#!/usr/bin/env bash
# Unit tests under AddressSanitizer and UndefinedBehaviorSanitizer, then those with threads under ThreadSanitizer.
# The first build (preset fuzz where clang is the compiler) also holds the fuzz targets.
#
# Of the whole models (tests_tests) those cases are left out that run the same code at other sizes, and would take minutes: long
# contexts and answers (LongContext, SecondTurn) and the windows of the reference, whose pages, windows and checkpoints the
# conformance of the CPU runs; 200 loads (LoadCycles); logits of transformers but for one family of each kind at g64 (llama, gemma3,
# gemma4, qwen3_moe, lfm2, qwen3_5), and those of converted folders, which LoadedModel opens; all but the last width of each family on every
# instruction set. Tests that run OpenVINO (WithOpenVino), whose code is not instrumented, are left out of all.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
. tools/setup/install.sh
choose_compiler || fail "no C++ compiler"
preset=asan
case $CXX in clang*) preset=fuzz ;; esac
export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1
status=0

# NAME or NAME=FILTER, as for gtests.py.
other_sizes='LongContext.*:*SecondTurn.*:ReferenceConformance_gemma3.*:LoadCycles.*:Families.*:Goldens/ConvertedFamilies.*'
for golden in '*_odd' '*_g128' 'granite*' 'llama_plain*' 'qwen2*' 'qwen3_g64' 'gpt_oss*' 'gemma4_large*'; do other_sizes+=":Goldens/Families.*/$golden"; done
for width in 0 1 3 4 6 7 9 10 13 14 16 18 19 21 22 24 25 27 28; do other_sizes+=":*/EveryFamily.*/$width"; done
addresses=(base_tests graph_tests models_tests passes_tests hub_tests store_tests convert_tests text_tests runtime_tests
           server_tests cli_tests quant_tests 'targets_tests=-WithOpenVino*' kernels_tests "tests_tests=-$other_sizes:WithOpenVino*")
# Rooms in which threads meet.
threads=(base_tests hub_tests store_tests 'targets_tests=-WithOpenVino*' runtime_tests server_tests)

# check PRESET PROGRAMS FURTHER-TARGETS...
check() {
  local preset=$1 programs=$2
  shift 2
  if tools/testing/build.sh "$preset" $(printf '%s\n' $programs | cut -d= -f1) "$@"; then
    tools/testing/gtests.py "build/$preset" --seconds 900 --only $programs || status=1
  else
    status=1
  fi
}
set -f  # filters hold stars
check $preset "${addresses[*]}" $(set +f; basename -s .cpp -a ./*/*_fuzz.cpp)
check tsan "${threads[*]}"
exit $status
