#!/usr/bin/env python3
"""tools/mkmodel.py: its GGUF file and its Hugging Face folder are one model, and onw reads both so.

The tiny shapes in F16 and in BF16, converted with --format f32, answered by the reference: the same logits, as far as F16
holds BF16's values (subnormals of FP16 lose bits).
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
ONW = os.environ.get("ONW") or str(ROOT / "build" / "release" / "onw")
MKMODEL = ROOT / "tools" / "mkmodel.py"
IDS = [1, 40, 77, 300, 256, 12, 90, 91, 92, 5, 5, 5, 200, 133, 17, 511]


def run(*words, **environment):
    subprocess.run([str(w) for w in words], check=True, capture_output=True, env=os.environ | environment, timeout=300)


def logits(folder, shape, name, *how):
    """Logits of the shape, made with the options `how`."""
    published, model, saved = folder / name, folder / f"{name}.model", folder / f"{name}.safetensors"
    run(sys.executable, MKMODEL, shape, published, *how)
    run(ONW, "convert", published, model, "--format", "f32")
    run(ONW, "eval", model, "--ids", folder / "ids", "--device", "reference", "--quantised", "no", "--save-logits", saved)
    return floats(saved)["logits"]


def floats(file):
    """The F32 tensors of a safetensors file, by name."""
    data = file.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    entries = {name: e for name, e in json.loads(data[8:start]).items() if e.get("dtype") == "F32"}
    return {name: np.frombuffer(data[start + e["data_offsets"][0]:start + e["data_offsets"][1]], np.float32).reshape(e["shape"])
            for name, e in entries.items()}


class MkmodelTest(unittest.TestCase):
    def test_the_file_and_the_folder_give_the_same_logits(self):
        for shape in ("tiny", "tinymoe", "tinyqwen35moe"):
            with self.subTest(shape), tempfile.TemporaryDirectory(prefix="onw-mkmodel-") as scratch:
                folder = pathlib.Path(scratch)
                (folder / "ids").write_text(" ".join(map(str, IDS)))
                published, file = logits(folder, shape, "hf", "--hf"), logits(folder, shape, "m.gguf", "--type", "f16")
                other = logits(folder, shape, "other", "--hf", "--seed", "2")
                largest = np.abs(published).max()
                self.assertLess(np.abs(published - file).max(), 1e-4 * largest)
                self.assertGreater(np.abs(published - other).max(), 0.1 * largest)

    def test_the_layer_that_predicts_one_token_further_is_the_same_in_both(self):
        with tempfile.TemporaryDirectory(prefix="onw-mkmodel-") as scratch:
            folder = pathlib.Path(scratch)
            layers = []
            for name, how in (("hf", ["--hf"]), ("m.gguf", ["--type", "f16"])):
                run(sys.executable, MKMODEL, "tinyqwen35moe", folder / name, "--mtp", *how)
                run(ONW, "convert", folder / name, folder / f"{name}.model", "--format", "f32")
                weights = {name: values for file in (folder / f"{name}.model").glob("*.safetensors") for name, values in floats(file).items()}
                layers.append({name: values for name, values in weights.items() if name.startswith("layers.4.")})  # behind 0 to 3
        common = layers[0].keys() & layers[1].keys()  # routers stay BF16 of the folder, F32 of the file
        self.assertTrue({f"layers.4.mtp.{part}" for part in ("fc", "embed_norm", "hidden_norm", "norm")} <= common)
        for name in common:
            np.testing.assert_allclose(layers[1][name], layers[0][name], atol=1e-6, err_msg=name)

    def test_experts_are_benchmarked_by_what_is_read_of_them(self):
        with tempfile.TemporaryDirectory(prefix="onw-mkmodel-") as scratch:
            folder = pathlib.Path(scratch)
            run(sys.executable, MKMODEL, "tinymoe", folder / "m.gguf")
            run(ONW, "convert", folder / "m.gguf", folder / "model")
            done = subprocess.run([ONW, "bench", folder / "model", "--device", "CPU", "--prompt", "32", "--decode", "8", "--no-load",
                                   "--json"], capture_output=True, text=True, check=True, timeout=300)
            report = json.loads(done.stdout)
            experts = (folder / "model" / "experts.safetensors").stat().st_size
            everything = experts + (folder / "model" / "weights.safetensors").stat().st_size
        self.assertEqual(sorted(run["kind"] for run in report["runs"]), ["decode", "prompt"])
        self.assertLess(report["model"]["step_bytes"], everything - experts // 2)  # a row takes 2 of 8 experts
        self.assertGreater(report["model"]["step_bytes"], 0)

    def test_help_needs_no_package(self):
        done = subprocess.run([sys.executable, "-I", "-S", str(MKMODEL), "--help"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("8b", done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
