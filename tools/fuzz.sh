#!/usr/bin/env bash
# A long fuzzing run: tools/fuzz.sh [SECONDS for each target, default 3600] [TARGET ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
each=${1:-3600}
shift || true
tools/testing/build.sh fuzz
exec tools/testing/fuzz.py --each "$each" ${1:+--only "$@"}
