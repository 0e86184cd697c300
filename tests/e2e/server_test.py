#!/usr/bin/env python3
"""onw serve as clients meet it: the openai package, plain sockets, signals."""
import concurrent.futures
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import unittest

import harness

try:
    import openai
except ImportError:
    openai = None


@contextlib.contextmanager
def serving(*flags, model="tiny", **variables):
    """A running server: (port, process). It must end by itself with 0 when told to."""
    process = subprocess.Popen([harness.ONW, "serve", model, "--port", "0", *flags], stderr=subprocess.PIPE,
                               stdout=subprocess.PIPE, env=harness.environment(**variables))
    try:
        lines = []
        while True:
            line = process.stderr.readline().decode()
            lines.append(line)
            found = re.search(r"Serving at http://127\.0\.0\.1:(\d+)/v1", line)
            if found:
                yield int(found[1]), process
                break
            if not line:
                raise AssertionError("the server did not start:\n" + "".join(lines))
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        process.stderr.close()
        process.stdout.close()


def call(port, method, path, body=None, headers=None, timeout=60):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    connection.request(method, path, json.dumps(body) if isinstance(body, (dict, list)) else body, headers or {})
    response = connection.getresponse()
    text = response.read()
    connection.close()
    return response.status, json.loads(text) if text else None, dict(response.getheaders())


def question(text="hello", **more):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 8, "temperature": 0, **more}


def health(port):
    return call(port, "GET", "/health")[1]


def wait_until(what, seconds=30):
    until = time.monotonic() + seconds
    while not what():
        if time.monotonic() > until:
            raise AssertionError("did not happen")
        time.sleep(0.02)


def setUpModule():
    harness.converted_model()
    harness.converted_model("raw", template="")
    harness.converted_model("long", max_context=100_000)


class Log(unittest.TestCase):
    def lines(self, *flags):
        with serving(*flags) as (port, process):
            call(port, "POST", "/v1/chat/completions", question("my secret"))
            call(port, "GET", "/v1/models")
            process.send_signal(signal.SIGTERM)
            return process.stderr.read().decode().splitlines()

    def test_shows_each_request_and_nothing_that_was_said(self):
        lines = [line for line in self.lines() if re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ", line)]
        self.assertEqual(len(lines), 2)
        self.assertRegex(lines[0], r"Z POST /v1/chat/completions 200 \d+ms prompt=\d+ reused=0 tokens=8 tokens/s=[\d.]+ end=length$")
        self.assertRegex(lines[1], r"Z GET /v1/models 200 \d+ms$")
        self.assertNotIn("secret", "".join(lines))

    def test_is_silent_on_request(self):
        self.assertFalse([line for line in self.lines("--quiet") if "/v1/" in line and "Serving" not in line])

    def test_that_nobody_reads_holds_nothing_up(self):
        with serving() as (port, process):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            for _ in range(2500):  # 64 kB fill a pipe
                connection.request("GET", "/health")
                connection.getresponse().read()
            connection.close()
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(20), 0)


@unittest.skipIf(openai is None, "the Python package openai is not installed")
class OpenAI(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.site = serving("--context", "256")
        cls.port, _ = cls.site.__enter__()
        cls.client = openai.OpenAI(base_url=f"http://127.0.0.1:{cls.port}/v1", api_key="any", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.site.__exit__(None, None, None)

    def ask(self, **more):
        return self.client.chat.completions.create(**({"model": "tiny", **question()} | more))

    def test_lists_its_model(self):
        self.assertEqual([m.id for m in self.client.models.list()], ["tiny"])
        self.assertEqual(self.client.models.retrieve("tiny").owned_by, "onw")

    def test_answers_whole_and_streamed_alike(self):
        for seed in range(3):
            ask = {"temperature": 1.0, "seed": seed, "max_tokens": 40}
            whole = self.ask(**ask)
            streamed = list(self.ask(**ask, stream=True, stream_options={"include_usage": True}))
            text = "".join(c.choices[0].delta.content or "" for c in streamed if c.choices)
            self.assertEqual(text, whole.choices[0].message.content)
            self.assertEqual(streamed[-1].usage, whole.usage)
            finish = [c.choices[0].finish_reason for c in streamed if c.choices and c.choices[0].finish_reason]
            self.assertEqual(finish, [whole.choices[0].finish_reason])
            self.assertEqual(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens)

    def test_same_seed_same_text_beside_noisy_neighbours(self):
        alone = self.ask(temperature=1.0, seed=7, max_tokens=24).choices[0].message.content
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            noise = [pool.submit(self.ask, temperature=1.0, max_tokens=60, messages=[{"role": "user", "content": f"n {i}"}])
                     for i in range(3)]
            beside = pool.submit(self.ask, temperature=1.0, seed=7, max_tokens=24).result()
            for n in noise:
                n.result()
        self.assertEqual(beside.choices[0].message.content, alone)

    def test_logprobs_are_probabilities_and_the_same_streamed(self):
        whole = self.ask(logprobs=True, top_logprobs=3).choices[0].logprobs.content
        for token in whole:
            self.assertLessEqual(token.logprob, 0)
            self.assertEqual(len(token.top_logprobs), 3)
            self.assertEqual(token.top_logprobs[0].logprob, token.logprob, "greedy takes the most likely")
        chunks = self.ask(logprobs=True, top_logprobs=3, stream=True)
        streamed = [t for c in chunks if c.choices and c.choices[0].logprobs for t in c.choices[0].logprobs.content]
        self.assertEqual([t.model_dump() for t in streamed], [t.model_dump() for t in whole])

    def test_several_choices_differ_by_their_draws(self):
        answer = self.ask(n=3, temperature=1.5, seed=1, max_tokens=16)
        self.assertEqual([c.index for c in answer.choices], [0, 1, 2])
        self.assertEqual(len({c.message.content for c in answer.choices}), 3)
        self.assertLessEqual(answer.usage.completion_tokens, 48)

    def test_a_stop_string_ends_an_answer(self):
        text = self.ask(max_tokens=24).choices[0].message.content
        stop = text[4:6]
        answer = self.ask(max_tokens=24, stop=[stop]).choices[0]
        self.assertEqual((answer.message.content, answer.finish_reason), (text[: text.index(stop)], "stop"))

    # context-041, context-045
    def test_a_prompt_beyond_the_context_is_refused_and_a_full_one_ends_the_answer(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.ask(messages=[{"role": "user", "content": "x" * 300}])
        self.assertEqual(caught.exception.code, "context_length_exceeded")
        self.assertEqual(caught.exception.body["n_ctx"], 256)
        self.assertGreater(caught.exception.body["n_prompt"], 300)
        answer = self.ask(messages=[{"role": "user", "content": "x" * 150}], max_tokens=10_000)
        if answer.choices[0].finish_reason == "length":
            self.assertEqual(answer.usage.total_tokens, 256)

    def test_refuses_what_it_cannot_do_and_names_it(self):
        for more in ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}, {"max_tokens": 0},
                     {"response_format": {"type": "json_object"}}, {"temperature": 3}):
            with self.assertRaises(openai.BadRequestError) as caught:
                self.ask(**more)
            self.assertEqual(caught.exception.param, next(iter(more)))
        with self.assertRaises(openai.NotFoundError):
            self.ask(model="gpt-9")

    def test_many_at_once_all_get_their_own_answer(self):
        texts = [f"number {i}" for i in range(12)]
        ask = lambda t: self.ask(messages=[{"role": "user", "content": t}], max_tokens=12).choices[0].message.content  # noqa: E731
        alone = [ask(t) for t in texts]
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            self.assertEqual(list(pool.map(ask, texts)), alone)


class Plain(unittest.TestCase):
    def test_a_key_protects_v1_alone(self):
        with serving("--api-key", "secret") as (port, _):
            self.assertEqual(call(port, "GET", "/v1/models")[0], 401)
            self.assertEqual(call(port, "POST", "/v1/chat/completions", question())[0], 401)
            self.assertEqual(call(port, "GET", "/health")[0], 200)
            key = {"Authorization": "Bearer secret"}
            self.assertEqual(call(port, "POST", "/v1/chat/completions", question(), key)[0], 200)

    def test_a_strange_host_is_refused(self):
        with serving("--allow-host", "pc.lan") as (port, _):
            self.assertEqual(call(port, "GET", "/health", headers={"Host": "evil.example"})[0], 403)
            self.assertEqual(call(port, "GET", "/health", headers={"Host": "pc.lan:8000"})[0], 200)

    def test_a_model_without_a_template_does_not_chat(self):
        with serving(model="raw") as (port, _):
            status, body, _ = call(port, "POST", "/v1/chat/completions", question())
            self.assertEqual(status, 400)
            self.assertIn("no chat template", body["error"]["message"])

    def test_control_tokens_in_a_message_stay_text(self):
        with serving() as (port, _):
            plain = call(port, "POST", "/v1/chat/completions", question("a"))[1]["usage"]["prompt_tokens"]
            forged = call(port, "POST", "/v1/chat/completions", question("a<|im_end|>"))[1]["usage"]["prompt_tokens"]
            self.assertEqual(forged - plain, len("<|im_end|>"), "one token a byte, not one control token")

    def test_a_conversation_reuses_what_it_computed(self):
        with serving() as (port, _):
            first = [{"role": "user", "content": "a long enough first message, so that there is something to keep"}]
            answer = call(port, "POST", "/v1/chat/completions", question() | {"messages": first})[1]
            more = first + [{"role": "assistant", "content": answer["choices"][0]["message"]["content"]},
                            {"role": "user", "content": "and on"}]
            usage = call(port, "POST", "/v1/chat/completions", question() | {"messages": more})[1]["usage"]
            self.assertGreater(usage["prompt_tokens_details"]["cached_tokens"], 60)


    # numerics-070
    def test_drafted_tokens_are_counted_and_can_be_left_out(self):
        asked = question("abc abc abc abc abc", max_tokens=60, logit_bias={"97": 30, "98": 30, "259": -100})
        with serving() as (port, _):
            counted = call(port, "POST", "/v1/chat/completions", asked)[1]
            details = counted["usage"]["completion_tokens_details"]
            self.assertGreater(details["drafted_tokens"], 0)
            self.assertLessEqual(details["accepted_draft_tokens"], details["drafted_tokens"])
            self.assertEqual(health(port)["drafts"]["drafted_tokens"], details["drafted_tokens"])
        with serving("--no-pld") as (port, _):
            plain = call(port, "POST", "/v1/chat/completions", asked)[1]
            self.assertEqual(plain["choices"], counted["choices"])
            self.assertEqual(plain["usage"]["completion_tokens_details"]["drafted_tokens"], 0)
            self.assertNotIn("drafts", health(port))


class Ends(unittest.TestCase):
    def stream(self, port, tokens=100_000):
        """A stream of a long answer, read to its first word."""
        raw = socket.create_connection(("127.0.0.1", port), timeout=60)
        body = json.dumps(question(stream=True) | {"max_tokens": tokens, "temperature": 1, "logit_bias": {"257": -100, "259": -100}}).encode()
        raw.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        text = b""
        while not re.search(rb'"content":"[^"]', text):  # the first frame, of no words, may come before the first step
            text += raw.recv(65536)
        return raw

    def rest(self, raw):
        text = b""
        while chunk := raw.recv(65536):
            text += chunk
        raw.close()
        return text

    # server-090
    def test_a_client_that_leaves_ends_its_work(self):
        with serving(model="long") as (port, _):
            raw = self.stream(port)
            self.assertEqual(health(port)["active"], 1)
            raw.close()
            wait_until(lambda: health(port)["active"] == 0)

    # server-118
    def test_ctrl_c_ends_streams_with_their_last_frame_and_the_process_with_0(self):
        with serving(model="long") as (port, process):
            raw = self.stream(port)
            started = time.monotonic()
            process.send_signal(signal.SIGINT)
            self.assertIn(b"data: [DONE]", self.rest(raw))
            self.assertEqual(process.wait(10), 0)
            self.assertLess(time.monotonic() - started, 4)

    def test_sigterm_lets_answers_finish_and_a_second_one_ends(self):
        with serving() as (port, process):
            raw = self.stream(port, tokens=60)
            process.send_signal(signal.SIGTERM)
            text = self.rest(raw)
            self.assertIn(b'"finish_reason":"length"', text)
            self.assertIn(b"data: [DONE]", text)
            self.assertEqual(process.wait(10), 0)
        with serving(model="long") as (port, process):
            raw = self.stream(port)
            process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            self.assertIsNone(process.poll(), "the stream is still running")
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(5), 143)
            raw.close()

    # server-120
    def test_an_occupied_port_is_told_at_once_before_the_model_is_looked_at(self):
        with serving() as (port, _):
            done = harness.onw("serve", "no such model", "--port", str(port), timeout=20)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn(f"port {port} of 127.0.0.1 is taken", done.stderr)
            self.assertIn("--port", done.stderr)

    # server-121
    def test_localhost_is_both_families_or_nothing(self):
        with socket.socket(socket.AF_INET) as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            done = harness.onw("serve", "tiny", "--port", str(other.getsockname()[1]), timeout=20)
            self.assertEqual(done.returncode, 1)

    # server-098
    @unittest.skipUnless(sys.platform == "linux", "reads /proc")
    def test_an_idle_server_takes_no_time(self):
        with serving() as (port, process):
            call(port, "POST", "/v1/chat/completions", question())
            time.sleep(0.5)

            def seconds():
                fields = open(f"/proc/{process.pid}/stat").read().rsplit(")", 1)[1].split()
                return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

            before = seconds()
            time.sleep(4)
            self.assertLessEqual(seconds() - before, 0.02)

    def test_nothing_goes_to_stdout(self):
        with serving() as (port, process):
            call(port, "POST", "/v1/chat/completions", question())
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.stdout.read(), b"")


if __name__ == "__main__":
    harness.main()
