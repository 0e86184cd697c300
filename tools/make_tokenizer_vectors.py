#!/usr/bin/env python3
"""Writes tests/data/smollm2_tokens.json: what llama.cpp makes of the texts of tests/parity/tokenizer_corpus.py.

    make_tokenizer_vectors.py --library libllama.so --model SmolLM2-135M-Instruct.Q4_1.gguf > tests/data/smollm2_tokens.json

Needs a build of llama.cpp as a shared library. Texts are given one by one, with control tokens matched and no BOS.
"""
import argparse
import ctypes
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "parity"))
from tokenizer_corpus import corpus  # noqa: E402


class ModelParams(ctypes.Structure):
    """llama_model_params, of whatever size: passed on as the library made it."""
    _fields_ = [("bytes", ctypes.c_ubyte * 256)]


class Llama:
    def __init__(self, library, model):
        lib = self.lib = ctypes.CDLL(library)
        lib.ggml_backend_load_all_from_path.argtypes = [ctypes.c_char_p]
        lib.ggml_backend_load_all_from_path(str(pathlib.Path(library).parent).encode())
        lib.llama_model_default_params.restype = ModelParams
        lib.llama_model_load_from_file.argtypes = [ctypes.c_char_p, ModelParams]
        lib.llama_model_load_from_file.restype = ctypes.c_void_p
        lib.llama_model_get_vocab.argtypes = [ctypes.c_void_p]
        lib.llama_model_get_vocab.restype = ctypes.c_void_p
        lib.llama_tokenize.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32, ctypes.POINTER(ctypes.c_int32),
                                       ctypes.c_int32, ctypes.c_bool, ctypes.c_bool]
        loaded = lib.llama_model_load_from_file(model.encode(), lib.llama_model_default_params())
        if not loaded:
            sys.exit(f"{model}: llama.cpp cannot load it")
        self.vocabulary = lib.llama_model_get_vocab(loaded)

    def ids(self, text):
        data = text.encode()
        buffer = (ctypes.c_int32 * (len(data) + 16))()
        count = self.lib.llama_tokenize(self.vocabulary, data, len(data), buffer, len(buffer), False, True)
        return buffer[:count]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--library", required=True)
    parser.add_argument("--model", required=True)
    options = parser.parse_args()
    llama = Llama(options.library, options.model)
    rows = [json.dumps([text, llama.ids(text)], ensure_ascii=True) for text in corpus(random_count=40)]
    print("[\n" + ",\n".join(rows) + "\n]")


if __name__ == "__main__":
    main()
