#!/usr/bin/env python3
"""OpenVINO as a user meets it: absent, broken, and there."""
import json
import os
import pathlib
import sys
import tempfile
import unittest

import harness
from harness import onw


def openvino_folder():
    """The folder with OpenVINO's libraries: ONW_OPENVINO_DIR, or the wheel of the Python that runs this."""
    given = os.environ.get("ONW_OPENVINO_DIR")
    if given:
        return given
    found = sorted(pathlib.Path(sys.prefix).glob("lib/python3*/site-packages/openvino"))
    return str(found[-1]) if found else None


NO_OPENVINO = "OpenVINO is not on this machine: run ./test.sh, which installs it into build/venv, or set ONW_OPENVINO_DIR"


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


if __name__ == "__main__":
    harness.main()
