#!/usr/bin/env python3
"""onw chat on a terminal: editing, several lines, history, Ctrl-C."""
import os
import pathlib
import resource
import select
import signal
import tempfile
import time
import unittest

import harness

try:
    import pty
except ImportError:
    pty = None


class Terminal:
    """onw chat on a terminal of its own."""

    def __init__(self, *words, before=lambda: None, **changes):
        self.text = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            before()
            os.execvpe(harness.ONW, [harness.ONW, "chat", *words], harness.environment(TERM="xterm", HOME=harness.FOLDER.name, **changes))

    def type(self, text):
        os.write(self.fd, text.encode())

    def see(self, word, seconds=60):
        """Reads until `word` is there; what came before it goes."""
        until = time.monotonic() + seconds
        while word not in self.text:
            if time.monotonic() > until:
                raise AssertionError(f"{word!r} does not come; there is {self.text!r}")
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self.fd, 65536).decode(errors="replace")
                except OSError:
                    raise AssertionError(f"ended without {word!r}: {self.text!r}")
        before, self.text = self.text.split(word, 1)
        return before

    def end(self):
        """The exit code, once it has ended by itself."""
        until = time.monotonic() + 20
        while time.monotonic() < until:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
            if select.select([self.fd], [], [], 0.05)[0]:
                try:
                    self.text += os.read(self.fd, 65536).decode(errors="replace")
                except OSError:
                    pass
        os.kill(self.pid, 9)
        raise AssertionError("does not end")


def setUpModule():
    harness.converted_model("long", max_context=100_000)


@unittest.skipIf(pty is None, "there are no pseudo-terminals here")
class Chat(unittest.TestCase):
    def test_answers_and_ends_with_ctrl_d(self):
        chat = Terminal("long", "--max-tokens", "8", "--temperature", "0")
        chat.see("> ")
        chat.type("héllo\r")
        chat.see("[prompt")
        chat.see("> ")
        chat.type("one\\\r")
        chat.see("... ")
        chat.type("two\r")
        self.assertIn("answer", chat.see("]"))
        chat.see("> ")
        chat.type("\x04")
        self.assertEqual(chat.end(), 0)

    def test_ctrl_c_stops_the_answer_and_at_the_prompt_ends(self):
        chat = Terminal("long", "--temperature", "0")
        chat.see("> ")
        chat.type("hello\r\n")
        chat.see("\n")
        time.sleep(0.3)
        chat.type("\x03")
        self.assertIn("[prompt", chat.see(", stopped]"))
        chat.see("> ")
        chat.type("/clear\r")
        chat.see("A new conversation")
        chat.see("> ")
        chat.type("half a line\x03")
        chat.see("^C")
        chat.see("> ")
        chat.type("\x03")
        chat.see("once more ends")
        chat.see("> ")
        chat.type("\x03")
        self.assertEqual(chat.end(), 0)

    def test_ctrl_c_drops_all_lines_of_a_message(self):
        chat = Terminal("long", "--max-tokens", "2", "--temperature", "0")
        chat.see("> ")
        for opening in ('"""\r', "first\\\r"):
            chat.type(opening)
            chat.see("... ")
            chat.type("secret\x03")
            chat.see("^C")
            chat.see("> ")
        chat.type("\x04")  # sends nothing: an answer would come with [prompt
        self.assertEqual(chat.end(), 0)
        self.assertNotIn("[prompt", chat.text)

    def test_an_end_typed_while_it_answers_is_no_less_an_end(self):
        chat = Terminal("long", "--max-tokens", "3000", "--temperature", "0")
        chat.see("> ")
        chat.type("hello\r\n")
        chat.see("\n")
        time.sleep(0.1)
        chat.type("\x04")
        self.assertNotIn("[prompt", chat.text)
        chat.see("[prompt")
        self.assertEqual(chat.end(), 0)

    def test_remembers_lines_for_the_next_time(self):
        chat = Terminal("long", "--max-tokens", "2", "--temperature", "0")
        chat.see("> ")
        chat.type("a line to remember\r")
        chat.see("]")
        chat.see("> ")
        chat.type("\x04")
        chat.end()
        chat = Terminal("long", "--max-tokens", "2", "--temperature", "0")
        chat.see("> ")
        chat.type("\x1b[A")
        chat.see("a line to remember")
        chat.type("\x15\x04")
        self.assertEqual(chat.end(), 0)

    def test_what_becomes_of_a_device_is_told_above_the_prompt_while_nothing_is_typed(self):
        fake = pathlib.Path(harness.ONW).resolve().parent / "libfake_openvino.so"
        if not fake.exists():
            self.skipTest(f"{fake.name} is not built: ninja fake_openvino")
        harness.converted_model("flat", head=0.01)
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "libopenvino_c.so").symlink_to(fake)
            chat = Terminal("flat", "--max-tokens", "2", "--temperature", "0", ONW_OPENVINO_DIR=folder, ONW_NPU_STAND_IN="CPU",
                            ONW_CACHE=pathlib.Path(folder, "cache"))
            chat.see("/help shows")
            self.assertIn("\x1b[K", chat.see("The NPU is ready"))  # nothing was typed: the prompt makes room
            chat.see("> ")
            chat.type("a question\r")
            chat.see("on the NPU")
            chat.type("\x04")
            self.assertEqual(chat.end(), 0)

    def test_a_full_disk_leaves_the_history_of_before(self):
        def talk(line, sees="]", **more):
            chat = Terminal("long", "--max-tokens", "2", "--temperature", "0", **more)
            chat.see("> ")
            chat.type(line + "\r")
            chat.see(sees)
            chat.see("> ")
            chat.type("\x04")
            self.assertEqual(chat.end(), 0)

        def fill():  # no file may grow beyond 20 bytes
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20))

        file = harness.HOME / "chat_history"
        talk("kept words")
        before = file.read_text()
        self.assertIn("kept", before)
        talk("words that find no room", sees="What is typed is not kept: cannot write", before=fill)
        self.assertEqual(file.read_text(), before)
        self.assertEqual([p.name for p in harness.HOME.glob("chat_history*")], ["chat_history"])


if __name__ == "__main__":
    harness.main()
