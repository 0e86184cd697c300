#!/usr/bin/env bash
# An environment in build/venv with the packages of tests/requirements.txt; made anew when that file changes.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
venv=build/venv
if ! cmp -s tests/requirements.txt $venv/requirements.txt; then
  # Not the first python3 of PATH, which may be a shim without venv: any that can make one.
  for python in /usr/bin/python3 python3; do
    rm -rf $venv
    if $python -m venv $venv; then break; fi
  done
  if ! { $venv/bin/pip install -q --disable-pip-version-check -r tests/requirements.txt && cp tests/requirements.txt $venv/requirements.txt; }; then
    echo "SKIP Python packages of tests/requirements.txt: pip could not install them, so tests that compare with them are skipped"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
  fi
fi
$venv/bin/python -c 'import transformers, tokenizers, jinja2, gguf, numpy, openvino; print("transformers", transformers.__version__, "tokenizers", tokenizers.__version__, "jinja2", jinja2.__version__, "openvino", openvino.__version__)'
status=$?
[ $status = 0 ] && echo "1 passed, 0 failed, 0 skipped" || echo "0 passed, 1 failed, 0 skipped"
exit $status
