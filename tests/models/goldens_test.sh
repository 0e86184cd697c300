#!/usr/bin/env bash
# The real models' logits against transformers' (tests/goldens/real-*). Fetches the models where they are not there yet.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
models=${ONW_TEST_MODELS:-build/models}
program=${ONW_BUILD:-build/release}/real_models
for model in smollm2 gemma3-270m; do
  if ! python3 tools/fetch_models.py "$model" --into "$models" >/dev/null; then
    echo "SKIP goldens of $model: it could not be fetched"
  fi
done
ONW_TEST_MODELS=$models exec "$program"
