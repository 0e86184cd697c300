#!/usr/bin/env bash
# From nothing to a conversation: ./start.sh [MODEL] [--serve]
#
# Installs what is missing (Debian 12, Ubuntu 22.04 or newer), builds, fetches and converts the default model, and opens the
# chat. Run again, it is up in seconds. Without a terminal it answers one question and exits.
#
#   MODEL            a model folder, a .gguf file, or a name of `onw list`; default: SmolLM2-135M-Instruct
#   --serve          start the server instead of the chat (ONW_PORT=N: at another port than 8000)
#   --ask TEXT       the question to answer without a terminal
#   --only-install   install what is missing, and stop (--with-tests: also what ./test.sh needs)
#   --only-build     install and build, and stop
set -euo pipefail
from=$PWD  # where MODEL is looked for
cd "$(dirname "${BASH_SOURCE[0]}")"

. tools/setup/install.sh

usage() { sed -n '2,12s/^# \{0,1\}//p' start.sh; }

model= action=chat until=chat purpose=build drawing=
question="In one sentence: what is a transformer in machine learning?"
while [ $# -gt 0 ]; do
  case $1 in
    --serve) action=serve ;;
    --ask) [ $# -gt 1 ] || { say "--ask needs a text"; exit 2; }; question=$2; shift ;;
    --only-install) until=install ;;
    --only-build) until=build ;;
    --with-tests) purpose=test ;;
    -h | --help) usage; exit 0 ;;
    -*) say "unknown option $1"; usage >&2; exit 2 ;;
    *) [ -z "$model" ] || { say "one MODEL at most, got '$model' and '$1'"; exit 2; }; model=$1 ;;
  esac
  shift
done

# 1. What is missing.
install_missing "$purpose"
[ "$until" != install ] || exit 0

# 2. The build. A compiler once chosen stays until build/release is removed.
build=build/release
if [ ! -f $build/build.ninja ]; then
  choose_compiler || fail "no C++ compiler: install clang 14 or newer, or g++ 11 or newer"
  say "Configuring with $CXX"
  log=$(mktemp)
  cmake --preset release -DCMAKE_C_COMPILER="$CC" -DCMAKE_CXX_COMPILER="$CXX" >"$log" 2>&1 ||
    { cat "$log" >&2; rm -rf $build; fail "cmake could not configure: see above"; }
  rm -f "$log"
fi
[ -x $build/onw ] || say "Building onw: some minutes the first time"
ninja -C $build onw >&2 || fail "the build failed: see above"  # standard output is left to the answer
[ "$until" != build ] || exit 0

# 3. The model.
if [ -z "$model" ]; then
  model=$(python3 tools/fetch_models.py smollm2) || fail "the default model could not be fetched: see above"
  drawing="--temperature 0.2 --top-p 0.9"  # what its publisher advises, which the file does not say
fi

[ ! -e "$from/$model" ] || model=$from/$model
say "The program is $PWD/$build/onw"

# 4. The conversation. A .gguf file is converted into the store the first time.
if [ $action = serve ]; then exec $build/onw serve "$model"; fi
if [ -t 0 ] && [ -t 1 ]; then exec $build/onw chat "$model" $drawing; fi
exec $build/onw chat "$model" --prompt "$question" --max-tokens 64 --temperature 0
