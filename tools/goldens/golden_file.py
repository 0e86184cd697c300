"""Writes a safetensors file whose bytes depend on nothing but its contents (the library's order of metadata varies)."""

import json
from pathlib import Path

import numpy as np

DTYPES = {"int64": "I64", "int32": "I32", "float32": "F32"}


def save(path: Path, tensors: dict[str, np.ndarray], metadata: dict[str, str]) -> None:
    header, data = {"__metadata__": metadata}, b""
    for name, tensor in tensors.items():
        begin = len(data)
        data += np.ascontiguousarray(tensor).tobytes()
        header[name] = {"dtype": DTYPES[str(tensor.dtype)], "shape": list(tensor.shape), "data_offsets": [begin, len(data)]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
