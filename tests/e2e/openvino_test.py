#!/usr/bin/env python3
"""OpenVINO as a user meets it: absent, broken, and there."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import harness
from harness import NO_OPENVINO, onw, openvino_folder


class Doctor(unittest.TestCase):
    def doctor(self, folder):
        done = onw("doctor", "--json", ONW_OPENVINO_DIR=folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_says_how_to_get_it_where_it_is_not(self):
        found = self.doctor("/no/such/folder")["openvino"]
        self.assertIsNone(found["library"])
        self.assertIn("pip install openvino", found["trouble"])
        self.assertIn("ONW_OPENVINO_DIR is /no/such/folder", found["trouble"])

    def test_a_library_that_does_not_load_is_told_with_the_reason(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "libopenvino_c.so").write_text("no library")
            found = self.doctor(folder)
            self.assertIn("cannot be loaded", found["openvino"]["trouble"])
            self.assertIn("pip install openvino", " ".join(found["advice"]))

    # npu-073, npu-075
    def test_a_device_whose_compiler_crashes_or_fails_is_told_and_takes_nobody_along(self):
        fake = pathlib.Path(harness.ONW).resolve().parent / "libfake_openvino.so"
        if not fake.exists():
            self.skipTest(f"{fake.name} is not built: ninja fake_openvino")
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "libopenvino_c.so").symlink_to(fake)
            for script, said in (("compile=crash", "crashed (Aborted)"), ("compile=fail", "Compiler returned an error")):
                done = onw("doctor", ONW_OPENVINO_DIR=folder, ONW_FAKE_OPENVINO=script)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("no graph runs, see below", done.stdout)
                self.assertIn("OpenVINO's device NPU: ", done.stdout)
                self.assertIn(said, done.stdout)

    def test_what_works_has_no_obstacle_and_a_variable_that_asks_for_what_does_not_is_named(self):
        fake = pathlib.Path(harness.ONW).resolve().parent / "libfake_openvino.so"
        if not fake.exists():
            self.skipTest(f"{fake.name} is not built: ninja fake_openvino")
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "libopenvino_c.so").symlink_to(fake)
            works = onw("doctor", ONW_OPENVINO_DIR=folder, ONW_DEVICE="NPU")
            self.assertRegex(works.stdout, r"NPU +as OpenVINO shows it")
            self.assertNotIn("ONW_DEVICE", works.stdout)
            fails = onw("doctor", ONW_OPENVINO_DIR=folder, ONW_DEVICE="NPU", ONW_FAKE_OPENVINO="compile=fail").stdout
            self.assertIn("ONW_DEVICE is NPU, and no NPU works here", fails)
            self.assertIn("ONW_NPU_STAND_IN is 'GPU'", onw("doctor", ONW_OPENVINO_DIR=folder, ONW_NPU_STAND_IN="GPU").stdout)

    @unittest.skipUnless(openvino_folder(), NO_OPENVINO)
    def test_shows_where_it_is_its_version_and_its_devices(self):
        found = self.doctor(openvino_folder())["openvino"]
        self.assertIn("libopenvino_c.so", found["library"])
        self.assertRegex(found["version"], r"^20\d\d\.")
        cpu = [d for d in found["devices"] if d["name"] == "openvino:CPU"]
        self.assertEqual(len(cpu), 1, found)
        self.assertIsNone(cpu[0]["trouble"])

    @unittest.skipUnless(openvino_folder(), NO_OPENVINO)
    def test_a_report_does_not_say_where_it_lies(self):
        done = onw("doctor", "--report", ONW_OPENVINO_DIR=openvino_folder())
        self.assertIn("openvino:CPU", done.stdout)
        self.assertNotIn("libopenvino_c", done.stdout)


class Models(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = harness.converted_model()
        published = pathlib.Path(harness.FOLDER.name) / "published" / "tiny"
        done = onw("convert", published, folder.parent / "tiny-npu", "--for", "npu")
        if done.returncode != 0:
            raise RuntimeError(f"the tiny model could not be converted for an NPU:\n{done.stderr}")

    def test_graphs_are_written_for_other_tools(self):
        with tempfile.TemporaryDirectory() as folder:
            done = onw("inspect", "tiny", "--ir", 4, "--out", folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            written = sorted(pathlib.Path(line).name for line in done.stdout.splitlines())
            self.assertEqual(written, sorted(p.name for p in pathlib.Path(folder).glob("*.xml")))
            self.assertIn("head.xml", written)
            self.assertIn("attention.0.1024.xml", written)
            self.check_with_openvino(pathlib.Path(folder))

    def check_with_openvino(self, folder):
        """Each graph compiles, and each product with a low-bit weight computes with its codes."""
        try:
            import openvino
        except ImportError:
            self.skipTest("this Python has no openvino: the files were written, but not read. Run ./test.sh, which installs it")
        low = ("i4", "u4", "i8", "u8")
        core = openvino.Core()
        for xml in folder.glob("*.xml"):
            model = core.read_model(xml)
            weights = [op for op in model.get_ops() if op.get_type_name() == "Constant" and op.get_element_type().get_type_name() in low]
            self.assertEqual(bool(weights), not xml.name.startswith("attention"), xml.name)
            compiled = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
            products = [op for op in compiled.get_runtime_model().get_ops() if str(op.get_rt_info()["layerType"].value) == "FullyConnected"]
            with_codes = [op for op in products if op.inputs()[1].get_element_type().get_type_name() in low]
            self.assertEqual(len(with_codes), len(weights), xml.name)

    def test_graphs_only_writes_them_for_each_number_of_rows_and_no_model(self):
        with tempfile.TemporaryDirectory() as folder:
            done = onw("convert", "tiny", folder, "--graphs-only", "--rows", "1,16", "--platform", "4000")
            self.assertEqual(done.returncode, 0, done.stderr)
            written = [pathlib.Path(line) for line in done.stdout.splitlines()]
            self.assertEqual({p.parent.name for p in written}, {"rows-1", "rows-16"})
            self.assertEqual(len(written), 2 * len({p.name for p in written}))
            self.assertEqual(sorted(p.name for p in pathlib.Path(folder).iterdir()), ["rows-1", "rows-16"])
            for xml in written:
                self.assertTrue(xml.with_suffix(".bin").exists(), xml)
            one = (pathlib.Path(folder) / "rows-1" / "head.xml").read_text()
            self.assertIn("npu", one)  # steps of the NPU's rewritings
            self.check_with_openvino(pathlib.Path(folder) / "rows-16")

    def test_graphs_only_takes_no_flags_of_weights(self):
        done = onw("convert", "tiny", "out", "--graphs-only", "--format", "q8c")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--graphs-only", done.stderr)

    def fake_device(self, folder):
        """OpenVINO as a script says, with a device NPU."""
        fake = pathlib.Path(harness.ONW).resolve().parent / "libfake_openvino.so"
        if not fake.exists():
            self.skipTest(f"{fake.name} is not built: ninja fake_openvino")
        pathlib.Path(folder, "libopenvino_c.so").symlink_to(fake)
        return {"ONW_OPENVINO_DIR": folder, "ONW_CACHE": str(pathlib.Path(folder, "cache"))}

    def test_graphs_are_compiled_ahead_once_and_listed(self):
        with tempfile.TemporaryDirectory() as folder:
            where = self.fake_device(folder)
            first = onw("compile", "tiny", **where)
            self.assertEqual(first.returncode, 0, first.stderr)
            self.assertIn("head", first.stdout)
            again = onw("compile", "tiny", ONW_FAKE_OPENVINO="compile=crash", **where)
            self.assertEqual(again.returncode, 0, again.stderr)
            self.assertEqual(again.stdout, first.stdout)
            cache = json.loads(onw("list", "--cache", "--json", **where).stdout)["cache"]
            graphs = [e for e in cache["entries"] if e["kind"] == "compiled graph"]
            self.assertTrue(graphs)
            self.assertEqual({g["model"] for g in graphs}, {"tiny"})
            self.assertGreater(cache["bytes"], sum(g["bytes"] for g in graphs))
            self.assertIn("head for 1 rows", onw("list", "--cache", **where).stdout)

    def test_what_does_not_compile_is_told_and_tried_anew_only_when_asked(self):
        with tempfile.TemporaryDirectory() as folder:
            where = self.fake_device(folder)
            done = onw("compile", "tiny", ONW_FAKE_OPENVINO="compile=fail", **where)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("Compiler returned an error", done.stderr)
            self.assertEqual(onw("compile", "tiny", **where).returncode, 1)
            self.assertEqual(onw("compile", "tiny", "--again", **where).returncode, 0)

    def test_ctrl_c_stops_compiling_and_keeps_what_is_done(self):
        with tempfile.TemporaryDirectory() as folder:
            where = self.fake_device(folder)
            running = subprocess.Popen([harness.ONW, "compile", "tiny"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       env=harness.environment(ONW_FAKE_OPENVINO="compile=slow", **where))
            time.sleep(1.5)
            running.send_signal(signal.SIGINT)
            said = running.communicate(timeout=4)[1].decode()
            self.assertEqual(running.returncode, 1, said)
            self.assertIn("the same command goes on", said)
            self.assertEqual(onw("compile", "tiny", **where).returncode, 0)

    @unittest.skipUnless(openvino_folder(), NO_OPENVINO)
    def test_every_segment_compiles_for_every_generation_where_the_compiler_is(self):
        for platform in ("3720", "4000", "5010"):
            done = onw("compile", "tiny", "--platform", platform, ONW_OPENVINO_DIR=openvino_folder(), timeout=600)
            if done.returncode != 0 and "has no compiler for NPUs" in done.stderr:
                self.assertIn("intel-driver-compiler-npu", done.stderr)
                self.skipTest("no NPU compiler on this machine, and onw said what to install: nothing was compiled")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("head", done.stdout)

    def test_compiling_needs_a_device_or_the_name_of_a_generation(self):
        done = onw("compile", "tiny", "--platform", "1234")
        self.assertEqual(done.returncode, 2)

    def test_ir_without_a_folder_is_a_wrong_command_line(self):
        for words in (["--ir", 4], ["--out", "x"]):
            done = onw("inspect", "tiny", *words)
            self.assertEqual(done.returncode, 2)
            self.assertIn("--ir 1 --out FOLDER", done.stderr)

    @unittest.skipUnless(openvino_folder(), NO_OPENVINO)
    def test_a_model_answers_on_its_CPU_device(self):
        words = ["chat", "tiny", "--device", "openvino:CPU", "--prompt", "abc", "--max-tokens", 4, "--temperature", 0]
        done = onw(*words, ONW_OPENVINO_DIR=openvino_folder())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(onw(*words, ONW_OPENVINO_DIR=openvino_folder()).stdout, done.stdout)

    @unittest.skipUnless(openvino_folder(), NO_OPENVINO)
    def test_the_path_of_an_NPU_answers_with_the_CPU_in_its_place(self):
        """Static graphs through the NPU's plugin, to OpenVINO's CPU device: by flag, by variable and by default."""
        words = ["chat", "tiny-npu", "--prompt", "abc abc abc", "--max-tokens", 6, "--temperature", 0]
        stand_in = {"ONW_OPENVINO_DIR": openvino_folder(), "ONW_NPU_STAND_IN": "CPU"}
        done = onw(*words, "--device", "NPU", **stand_in)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.strip())
        self.assertEqual(onw(*words, ONW_DEVICE="NPU", **stand_in).stdout, done.stdout)
        self.assertEqual(onw(*words, **stand_in).stdout, done.stdout)
        told = onw("chat", "tiny-npu", stdin="abc\n", **stand_in).stderr
        self.assertIn("on NPU", told)
        self.assertIn("ONW_NPU_STAND_IN", told)

    def agrees_with_the_reference(self, model, tokens, device, **environment):
        with tempfile.NamedTemporaryFile("w") as ids:
            ids.write(" ".join(str(7 * i % 90) for i in range(tokens)))
            ids.flush()
            done = onw("eval", model, "--ids", ids.name, "--device", device, "--quantised", "no", "--kv", "f32",
                       "--against", "reference", "--json", ONW_OPENVINO_DIR=openvino_folder(), **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        self.assertEqual(found["device"], device)
        self.assertLess(abs(found["against"]["mean_kl"]), 1e-7, found)

    @unittest.skipUnless(openvino_folder(), NO_OPENVINO)
    def test_the_graphs_of_an_NPU_agree_with_the_reference(self):
        self.agrees_with_the_reference("tiny-npu", 150, "NPU", ONW_NPU_STAND_IN="CPU")

    @unittest.skipUnless(openvino_folder(), NO_OPENVINO)
    def test_bench_tells_the_hosts_share(self):
        done = onw("bench", "tiny", "--device", "openvino:CPU", "--prompt", 16, "--decode", 8, "--no-load", "--json",
                   ONW_OPENVINO_DIR=openvino_folder())
        self.assertEqual(done.returncode, 0, done.stderr)
        for run in json.loads(done.stdout)["runs"]:
            self.assertGreater(run["host_share"], 0, run)
            self.assertLess(run["host_share"], 1, run)

    @unittest.skipIf(pathlib.Path("/dev/accel/accel0").exists(), "this machine has an NPU")
    def test_an_NPU_that_is_not_there_is_an_error_only_for_who_asks_for_it(self):
        words = ["chat", "tiny", "--prompt", "abc", "--max-tokens", 4, "--temperature", 0]
        folder = openvino_folder() or "/no/such/folder"
        done = onw(*words, "--device", "NPU", ONW_OPENVINO_DIR=folder)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout, "")
        self.assertIn("NPU" if openvino_folder() else "pip install openvino", done.stderr)
        self.assertIn("--device CPU" if openvino_folder() else "pip", done.stderr)
        silent = onw(*words, ONW_OPENVINO_DIR=folder)
        self.assertEqual(silent.returncode, 0, silent.stderr)
        self.assertEqual(silent.stderr, "")
        self.assertIn("on CPU", onw("chat", "tiny", stdin="abc\n", ONW_OPENVINO_DIR=folder).stderr)
        self.assertIn("this machine shows no NPU", onw("chat", "tiny", stdin="abc\n", ONW_OPENVINO_DIR=folder).stderr)

    def test_without_openvino_its_device_says_how_to_get_it(self):
        done = onw("chat", "tiny", "--device", "openvino:CPU", "--prompt", "abc", ONW_OPENVINO_DIR="/no/such/folder")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout, "")
        self.assertIn("pip install openvino", done.stderr)

    @unittest.skipUnless(openvino_folder(), NO_OPENVINO)
    def test_agrees_with_the_reference(self):
        self.agrees_with_the_reference("tiny", 60, "openvino:CPU")


if __name__ == "__main__":
    harness.main()
