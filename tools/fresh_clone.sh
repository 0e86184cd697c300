#!/usr/bin/env bash
# Proof that what is committed is enough: clones HEAD into a new folder, builds there and runs the quick tests (or the stages named).
#
#   tools/fresh_clone.sh [STAGE ...]        in $TMPDIR; the clone is removed afterwards
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=$(mktemp -d "${TMPDIR:-/tmp}/fresh-clone.XXXXXX")
trap 'rm -rf "$folder"' EXIT
git clone -q --no-hardlinks . "$folder/onw"
cd "$folder/onw"
if [ $# -gt 0 ]; then ./test.sh build "$@"; else ./test.sh --quick; fi
