#!/usr/bin/env python3
"""onw pull, list and rm as a person uses them, against a hub on this machine that has faults."""
import ctypes
import json
import os
import pathlib
import pty
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import tiny_hf  # noqa: E402
from hub_server import Hub, Proxy, Server  # noqa: E402
from terminal import read_terminal  # noqa: E402

ONW = os.environ.get("ONW", "build/release/onw")
FILES = tiny_hf.files()
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


class Home:
    """A store of its own for one test, in a folder with a name that is not ASCII."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="模型 é "))

    def environment(self, hub=None, **variables):
        env = {k: v for k, v in os.environ.items() if k not in PROXIES and k not in ("HF_TOKEN", "HF_ENDPOINT")}
        env.update(ONW_HOME=str(self.folder / "home"), ONW_CACHE=str(self.folder / "cache"), **variables)
        if hub is not None:
            env["HF_ENDPOINT"] = hub if isinstance(hub, str) else hub.address
        return env

    def run(self, *arguments, hub=None, before=None, **variables):
        return subprocess.run([ONW, *map(str, arguments)], env=self.environment(hub, **variables), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, errors="replace", timeout=120, preexec_fn=before)

    def start(self, *arguments, hub=None, **variables):
        return subprocess.Popen([ONW, *map(str, arguments)], env=self.environment(hub, **variables), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")

    def on_terminal(self, *arguments, hub, types):
        """(exit code, all that was shown) of a run on a terminal on which `types` is typed."""
        pid, fd = pty.fork()
        if pid == 0:
            os.execvpe(ONW, [ONW, *arguments], self.environment(hub))
        os.write(fd, types.encode())
        text = read_terminal(fd)
        os.close(fd)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text.decode(errors="replace")

    def models(self):
        return [m["name"] for m in json.loads(self.run("list", "--json").stdout)["models"]]


def flip(name, body):
    return body[:5000] + bytes([body[5000] ^ 1]) + body[5001:], None


def cut(name, body):
    return body, 3000


def held_transfer():
    """(an event that is set when the transfer begins, one that lets it go on, the fault)."""
    begun, go_on = threading.Event(), threading.Event()

    def hold(name, body):
        begun.set()
        go_on.wait(60)
        return body, None

    return begun, go_on, hold


def deny_symlinks():
    """The calls symlink and symlinkat fail from here on, by a seccomp filter (x86-64)."""
    libc = ctypes.CDLL(None, use_errno=True)
    load, jump, give = 0x20, 0x15, 0x06
    program = [(load, 0, 0, 0), (jump, 1, 0, 88), (jump, 0, 1, 266), (give, 0, 0, 0x00050001), (give, 0, 0, 0x7FFF0000)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    filter_ = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, filter_, 0, 0) != 0:
        raise OSError("no seccomp filters here")
    try:
        os.symlink("a", "/nowhere/b")
    except PermissionError:
        return
    raise OSError("the filter does not hold")


class HubTest(unittest.TestCase):
    def setUp(self):
        self.home = Home()
        self.addCleanup(shutil.rmtree, self.home.folder, True)

    def assert_pulled(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.home.models(), ["org/tiny"])

    def assert_failed(self, done, *words):
        self.assertEqual(done.returncode, 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertEqual(self.home.models(), [])

    def test_a_pulled_model_answers_and_is_listed_and_removed(self):  # platform/ui-158
        with Hub(FILES) as hub:
            self.assert_pulled(self.home.run("pull", "org/tiny", hub=hub))
        answer = self.home.run("chat", "org/tiny", "--prompt", "Hi", "--max-tokens", "4", "--temperature", "0")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertEqual(self.home.run("rm", "org/tiny", "--yes").returncode, 0)
        self.assertEqual(self.home.models(), [])
        self.assertEqual(self.home.run("rm", "org/tiny", "--yes").returncode, 1)

    def test_a_complete_model_is_loaded_without_a_connection(self):  # hub-140
        with Hub(FILES) as hub:
            self.assert_pulled(self.home.run("pull", "org/tiny", hub=hub))
            before = len(hub.requests)
            with Server(lambda request: request.reply(500)) as proxy:
                answer = self.home.run("chat", "org/tiny", "--prompt", "Hi", "--max-tokens", "2", hub=hub, http_proxy=proxy.address,
                                       HTTPS_PROXY=proxy.address)
                self.assertEqual(answer.returncode, 0, answer.stderr)
                self.assertEqual(proxy.requests, [])
            self.assertEqual(len(hub.requests), before)

    def test_a_model_that_is_not_there_is_pulled_if_a_person_says_so(self):
        with Hub(FILES) as hub:
            for command in ("chat", "serve", "bench"):
                self.assert_failed(self.home.run(command, "org/tiny", hub=hub), "onw pull org/tiny")
            self.assert_failed(self.home.run("chat", "./org/tiny", hub=hub), "Nor is it a folder")
            words = ("chat", "org/tiny", "--prompt", "Hi", "--max-tokens", "2")
            for answer in ("n", "", "no", "maybe"):
                code, text = self.home.on_terminal(*words, hub=hub, types=answer + "\n")
                self.assertEqual(code, 1, text)
                self.assertIn(f"Pull it from {hub.address}? [y/N]", text)
                self.assertIn("onw pull org/tiny", text)
            self.assertEqual(hub.requests, [], "nobody agreed to a connection")
            code, text = self.home.on_terminal(*words, hub=hub, types="y\n")
            self.assertEqual(code, 0, text)
            self.assertEqual(self.home.models(), ["org/tiny"])
            asked = len(hub.requests)
            code, text = self.home.on_terminal(*words, hub=hub, types="")
            self.assertEqual((code, len(hub.requests)), (0, asked), text)
            self.assertNotIn("Pull", text)

    def test_a_cut_transfer_goes_on(self):
        with Hub(FILES, faults=[cut, cut]) as hub:
            self.assert_pulled(self.home.run("pull", "org/tiny", hub=hub))
            ranges = [headers.get("Range") for path, headers in hub.requests if path.startswith("/cdn/")]
            self.assertEqual(ranges, [None, "bytes=3000-", "bytes=6000-"])

    def test_a_flipped_byte_is_mended_by_another_try(self):  # hub-138
        with Hub(FILES, faults=[flip]) as hub:
            self.assert_pulled(self.home.run("pull", "org/tiny", hub=hub))

    def test_a_byte_that_stays_flipped_is_an_error_with_both_digests(self):  # hub-138
        with Hub(FILES, faults=[flip] * 9) as hub:
            digest = next(s["lfs"]["sha256"] for s in hub.listing()["siblings"] if "lfs" in s)
            done = self.home.run("pull", "org/tiny", hub=hub)
            self.assert_failed(done, digest, "digest")
            self.assertEqual(len(set(w for w in done.stderr.replace(".", " ").split() if len(w) == 64)), 2)

    def test_of_two_pulls_at_once_the_second_waits_and_finds_the_model_done(self):
        begun, go_on, hold = held_transfer()
        with Hub(FILES, faults=[hold]) as hub:
            first = self.home.start("pull", "org/tiny", hub=hub)
            self.addCleanup(first.kill)
            self.assertTrue(begun.wait(60))
            second = self.home.start("pull", "org/tiny", hub=hub)
            self.addCleanup(second.kill)
            waits = second.stderr.readline()
            self.assertIn("waiting", waits)
            self.assertIsNone(first.poll())
            go_on.set()
            for process, word in ((first, "Talk to it"), (second, "is here already")):
                text = process.communicate(timeout=60)[1]
                self.assertEqual(process.returncode, 0, text)
                self.assertIn(word, text)
            self.assertEqual(self.home.models(), ["org/tiny"])
            self.assertEqual(len([path for path, _ in hub.requests if path.startswith("/cdn/")]), 1)

    def test_a_pull_that_was_killed_leaves_no_lock(self):
        begun, go_on, hold = held_transfer()
        with Hub(FILES, faults=[hold]) as hub:
            first = self.home.start("pull", "org/tiny", hub=hub)
            self.assertTrue(begun.wait(60))
            first.kill()
            first.communicate()
            go_on.set()
            done = self.home.run("pull", "org/tiny", hub=hub)
            self.assert_pulled(done)
            self.assertNotIn("waiting", done.stderr)

    def test_names_that_lead_out_of_the_folder_are_refused(self):  # hub-141
        for name in ("../../x", "/x", "C:\\x", "a\u0000b"):
            with Hub({**FILES, name: b"x"}) as hub:
                self.assert_failed(self.home.run("pull", "org/tiny", hub=hub), "Refused")
                self.assertEqual(len(hub.requests), 1)

    def test_the_store_needs_no_symbolic_links(self):  # hub-143
        with Hub(FILES) as hub:
            try:
                self.assert_pulled(self.home.run("pull", "org/tiny", hub=hub, before=deny_symlinks))
            except subprocess.SubprocessError:
                self.skipTest("this system takes no seccomp filter")
        links = [p for p in self.home.folder.rglob("*") if p.is_symlink()]
        self.assertEqual(links, [])

    def test_a_private_model_wants_a_token_which_the_cdn_never_sees(self):
        with Server(lambda request: hub.handle(request)) as cdn, Hub(FILES, token="secret") as hub:
            hub.cdn = cdn.address.replace("127.0.0.1", "localhost")
            self.assert_failed(self.home.run("pull", "org/tiny", hub=hub), "HF_TOKEN")
            self.assert_pulled(self.home.run("pull", "org/tiny", hub=hub, HF_TOKEN="secret"))
            self.assertTrue(cdn.requests)
            self.assertFalse([h for _, h in cdn.requests if "Authorization" in h])

    def test_a_proxy_is_used_for_every_host(self):  # hub-146
        with Hub(FILES) as hub, Proxy(hub.address) as proxy:
            hub.cdn = "http://cdn.invalid"  # names that only the proxy resolves
            self.assert_pulled(self.home.run("pull", "org/tiny", hub="http://hub.invalid", http_proxy=proxy.address))
            hosts = {path.split("/")[2] for path, _ in proxy.requests}
            self.assertEqual(hosts, {"hub.invalid", "cdn.invalid"})

    def test_an_error_of_the_network_says_what_was_tried(self):
        with Hub(FILES) as hub:
            address = hub.address
        dead = address.removeprefix("http://")
        plain = self.home.start("pull", "org/tiny", hub=address)
        proxied = self.home.start("pull", "org/other", hub="http://hub.invalid", http_proxy=f"http://me:s3cret@{dead}")
        text = plain.communicate(timeout=60)[1]
        self.assertEqual(plain.returncode, 1)
        for word in (dead, "directly (no proxy is set)", "set http_proxy", f"The hub is {address}, as HF_ENDPOINT says"):
            self.assertIn(word, text)
        tries = [line for line in text.splitlines() if "Try " in line]
        self.assertEqual(len(tries), 5)
        for number, line in enumerate(tries, 2):
            self.assertRegex(line, rf"^org/tiny: no connection to .* Try {number} of 6 in [\d.]+ s$")
        self.assertNotIn("0 B", text)
        text = proxied.communicate(timeout=60)[1]
        self.assertEqual(proxied.returncode, 1)
        for word in ("hub.invalid", f"through the proxy http://{dead} (http_proxy)", "Is http_proxy right"):
            self.assertIn(word, text)
        self.assertNotIn("s3cret", text)
        self.assertEqual(self.home.models(), [])

    def test_a_proxy_that_wants_a_password_is_told_at_once(self):
        with Server(lambda request: request.reply(407)) as proxy:
            for hub, variable in (("http://hub.invalid", "http_proxy"), ("https://hub.invalid", "HTTPS_PROXY")):
                done = self.home.run("pull", "org/tiny", hub=hub, **{variable: proxy.address})
                self.assert_failed(done, proxy.address, variable, "NAME:PASSWORD")
                self.assertNotIn("Try ", done.stderr)
        with Server(lambda request: request.reply(403)) as proxy:
            done = self.home.run("pull", "org/tiny", hub="https://hub.invalid", HTTPS_PROXY=proxy.address)
            self.assert_failed(done, f"the proxy {proxy.address} (HTTPS_PROXY) makes no connection to hub.invalid: it answers 403")

    def test_a_cut_transfer_says_why_it_tries_again(self):
        with Hub(FILES, faults=[cut, flip]) as hub:
            done = self.home.run("pull", "org/tiny", hub=hub)
            self.assert_pulled(done)
            self.assertRegex(done.stderr, r"model\.safetensors: the transfer from 127\.0\.0\.1:\d+ broke off: .* Try 2 of 6 in 0\.5 s")
            self.assertRegex(done.stderr, r"model\.safetensors: what came is not what the hub announced\. Once more")

    def test_what_is_not_there_and_what_is_no_name_differ(self):
        with Hub(FILES) as hub:
            self.assert_failed(self.home.run("pull", "org/other", hub=hub), "org/other", "spelling")
            wrong = self.home.run("pull", "../x", hub=hub)
            self.assertIn(wrong.returncode, (1, 2))
            self.assertIn("../x", wrong.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
