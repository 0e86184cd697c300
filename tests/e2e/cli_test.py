#!/usr/bin/env python3
"""The command line as a person or a script meets it: exit codes, what goes where, and a remedy in every error."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

import harness
from harness import onw

FOLDER = pathlib.Path(harness.FOLDER.name)


def setUpModule():
    harness.converted_model()


class Usage(unittest.TestCase):
    def fails_with(self, code, *words, says=(), **more):
        done = onw(*words, **more)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stdout, "", "errors do not go to stdout")
        for word in says:
            self.assertIn(word, done.stderr)

    def test_a_wrong_command_line_is_two(self):
        self.fails_with(2, says=["Usage: onw COMMAND"])
        self.fails_with(2, "frobnicate", says=["no command 'frobnicate'", "pull", "doctor"])
        self.fails_with(2, "list", "--jsn", says=["--jsn", "onw list --help"])
        self.fails_with(2, "list", "extra", says=["'extra' is one word too many"])
        self.fails_with(2, "convert", "only-one", says=["OUT is missing", "onw convert SRC OUT"])
        self.fails_with(2, "convert", "a", "b", "--for", "gpu", says=["'gpu' is not one of cpu, npu"])
        self.fails_with(2, "convert", "a", "b", "--format", "q9", says=["q4g128"])
        self.fails_with(2, "rm", "tiny", says=["onw rm tiny --yes"])

    def test_what_is_not_there_is_one_with_a_remedy(self):
        self.fails_with(1, "check", "nothing", says=["no model 'nothing'", "onw pull"])
        self.fails_with(1, "check", FOLDER / "nothing.gguf", says=["nothing.gguf: no such file"])
        self.fails_with(1, "rm", "nothing", "--yes", says=["no model 'nothing'"])
        empty = FOLDER / "empty"
        empty.mkdir()
        self.fails_with(1, "check", empty, says=["without a model"])
        published = FOLDER / "published" / "tiny"
        self.assertIn("no fault", onw("check", published).stdout)
        self.fails_with(2, "convert", published, harness.HOME / "models" / "tiny", says=["exists already"])

    def test_slips_of_a_finger_get_a_suggestion(self):
        self.fails_with(2, "sevre", "tiny", says=["no command 'sevre'", "Did you mean serve?"])
        self.fails_with(2, "chat", "tiny", "--max-token", "3", says=["no flag --max-token.", "Did you mean --max-tokens?"])

    def test_a_graph_in_another_form_needs_a_graph(self):
        for flag in ("--dot", "--primitive"):
            self.fails_with(2, "inspect", "tiny", flag, says=[f"onw inspect tiny --graph 1 {flag}"])
        self.assertIn("digraph", onw("inspect", "tiny", "--graph", "1", "--dot").stdout)

    def test_help_and_version_go_to_stdout(self):
        for words in (["--help"], ["-h"], ["help"], ["list", "--help"], ["convert", "-h"], ["--version"]):
            done = onw(*words)
            self.assertEqual((done.returncode, done.stderr), (0, ""), words)
            self.assertNotEqual(done.stdout, "")
        for command in ("pull", "list", "rm", "convert", "check", "doctor"):
            self.assertIn(f"  {command} ", onw("--help").stdout)
            self.assertIn(f"Usage: onw {command}", onw(command, "--help").stdout)

    def test_the_page_of_commands_is_fresh(self):
        self.assertEqual(onw("--help-markdown").stdout, (harness.ROOT / "docs" / "cli.md").read_text(encoding="utf-8"))

    def test_a_full_disk_behind_stdout_is_an_error(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([harness.ONW, "--help"], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"stdout", done.stderr)

    def test_closed_or_full_standard_files_change_no_exit_code(self):
        def run(words):
            done = subprocess.run(["sh", "-c", f'exec "$0" {words}', harness.ONW], env=harness.environment(),
                                  stdout=subprocess.DEVNULL, timeout=60)
            return done.returncode

        self.assertEqual(run("chat tiny <&-"), 0, "there is nothing to read")
        self.assertEqual(run("chat nosuch 2>&-"), 1)
        self.assertEqual(run("chat tiny --context 0 --prompt hi 2>/dev/full"), 2)

    def test_a_conversation_from_a_pipe_that_cannot_go_on_is_a_failure(self):
        done = onw("chat", "tiny", "--context", "16", stdin="far more words than this context of sixteen tokens holds\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("context", done.stderr)
        self.assertNotIn("/clear", done.stderr)

    def test_a_pipe_in_place_of_a_file_is_refused_at_once(self):
        os.mkfifo(FOLDER / "pipe.gguf")
        self.fails_with(1, "inspect", FOLDER / "pipe.gguf", says=["not a regular file"])


class Models(unittest.TestCase):
    def test_list_is_a_table_or_json(self):
        self.assertIn("tiny", onw("list").stdout)
        models = json.loads(onw("list", "--json", "--cache").stdout)
        self.assertIn("tiny", [m["name"] for m in models["models"]])
        self.assertIn("bytes", models["cache"])

    def test_what_is_unfinished_is_listed_and_removed(self):
        home = FOLDER / "interrupted"
        (home / "downloads" / "org--name").mkdir(parents=True)
        (home / "downloads" / "org--name" / "model.safetensors.part").write_bytes(b"12345")
        self.assertRegex(onw("list", ONW_HOME=home).stdout, r"org/name +5 B +download")
        asked = onw("rm", "org/name", ONW_HOME=home)
        self.assertEqual(asked.returncode, 2)
        self.assertIn("--yes", asked.stderr)
        self.assertEqual([left["name"] for left in json.loads(onw("list", "--json", ONW_HOME=home).stdout)["unfinished"]], ["org/name"])
        self.assertEqual(onw("rm", "org/name", "--yes", ONW_HOME=home).returncode, 0)
        self.assertEqual(onw("list", ONW_HOME=home).stdout, "")
        self.assertEqual(onw("rm", "org/name", "--yes", ONW_HOME=home).returncode, 1)

    def test_an_empty_store_says_how_to_fill_it(self):
        done = onw("list", ONW_HOME=FOLDER / "nobody")
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertIn("onw pull", done.stderr)

    def test_a_converted_model_is_whole_until_a_byte_changes(self):
        done = onw("check", "tiny", "--deep")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("every byte read", done.stdout)
        broken = harness.HOME / "models" / "broken"
        shutil.copytree(harness.HOME / "models" / "tiny", broken)
        weights = broken / "weights.safetensors"
        content = bytearray(weights.read_bytes())
        content[len(content) // 2] ^= 1
        weights.write_bytes(content)
        done = onw("check", "broken", "--deep")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("weights.safetensors", done.stderr)
        weights.write_bytes(content[: len(content) // 2])
        self.assertEqual(onw("check", "broken").returncode, 1)
        self.assertEqual(onw("rm", "broken", "--yes").returncode, 0)
        self.assertFalse(broken.exists())

    def test_convert_tells_the_format_and_error_of_each_weight(self):
        done = onw("convert", FOLDER / "published" / "tiny", FOLDER / "eight-bits", "--format", "q8g128")
        self.assertEqual(done.returncode, 0, done.stderr)
        line = next(x for x in done.stdout.splitlines() if x.startswith("layers.0.mlp.down"))
        self.assertIn("q8g128", line)
        self.assertRegex(line, r"error 0\.00\d")

    # platform/ui-158
    def test_folders_may_have_spaces_and_any_letters(self):
        folder = FOLDER / "模型 é – ü"
        shutil.copytree(FOLDER / "published" / "tiny", folder / "källa ⟶")
        done = onw("convert", folder / "källa ⟶", folder / "出力")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("whole", onw("check", folder / "出力", "--deep").stdout)
        self.assertEqual(onw("check", "出力", cwd=folder).returncode, 0)
        done = onw("list", ONW_HOME=folder / "home")
        self.assertEqual((done.returncode, done.stdout), (0, ""))


class Chat(unittest.TestCase):
    ASK = ("--max-tokens", "12", "--temperature", "0")

    def test_a_prompt_gets_its_answer_alone_on_stdout(self):
        done = onw("chat", "tiny", "--prompt", "hello", *self.ASK)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue(done.stdout.endswith("\n"))
        self.assertEqual(onw("chat", "tiny", "--prompt", "hello", *self.ASK, "--device", "reference").stdout, done.stdout)

    def test_same_seed_same_answer(self):
        ask = ("chat", "tiny", "--prompt", "hello", "--max-tokens", "12", "--temperature", "1.3", "--seed")
        self.assertEqual(onw(*ask, "5").stdout, onw(*ask, "5").stdout)
        self.assertNotEqual(onw(*ask, "5").stdout, onw(*ask, "6").stdout)

    def test_lines_of_a_pipe_are_a_conversation(self):
        done = onw("chat", "tiny", *self.ASK, stdin='one\n/clear\n"""\ntwo\nlines\n"""\n/what\n')
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stderr.count("[prompt"), 2)
        self.assertIn("/what is no command", done.stderr)
        self.assertNotIn("[prompt", done.stdout)

    def test_a_model_without_a_template_continues_the_text_and_says_so(self):
        harness.converted_model("raw", template="")
        done = onw("chat", "raw", "--prompt", "hello", *self.ASK)
        self.assertEqual(done.returncode, 0)
        self.assertIn("no chat template", done.stderr)

    def test_a_prompt_beyond_the_context_is_refused(self):
        done = onw("chat", "tiny", "--context", "64", "--prompt", "x" * 100, *self.ASK)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("64", done.stderr)

    def test_ctrl_c_stops_the_answer(self):
        harness.converted_model("long", max_context=100_000)
        process = subprocess.Popen([harness.ONW, "chat", "long", "--prompt", "hello", "--temperature", "0"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=harness.environment())
        process.stdout.read(5)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
        self.assertEqual(process.returncode, 130)


class Text(unittest.TestCase):
    def test_tokenize_there_and_back(self):
        text = "Grüße <|im_start|> 世界\n"
        found = json.loads(onw("tokenize", "tiny", "--json", stdin=text).stdout)
        self.assertEqual(len(found["ids"]), len(text.encode()), "a byte each: control tokens in plain text stay text")
        back = onw("tokenize", "tiny", "--decode", stdin=" ".join(map(str, found["ids"])))
        self.assertEqual(back.stdout, text)
        self.assertIn(258, json.loads(onw("tokenize", "tiny", "--json", "--special", stdin=text).stdout)["ids"])
        self.assertEqual(json.loads(onw("tokenize", "tiny", "--json", "--bos", stdin="a").stdout)["ids"], [256, 97])
        self.assertEqual(onw("tokenize", "tiny", "--decode", stdin="12 x").returncode, 1)

    def test_render_gives_the_exact_prompt(self):
        request = json.dumps({"messages": [{"role": "user", "content": "hi"}]})
        prompt = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
        self.assertEqual(onw("render", "tiny", stdin=request).stdout, prompt)
        template = FOLDER / "greet.jinja"
        template.write_text("{{ messages[0].content }}{{ raise_exception('no ' + x) if x }}")
        self.assertEqual(onw("render", "--template", template, stdin=request).stdout, "hi")
        done = onw("render", "--template", template, stdin=json.dumps({"messages": [{"content": "a"}], "x": "way"}))
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("no way", done.stderr)
        self.assertEqual(onw("render", stdin=request).returncode, 2)
        self.assertEqual(onw("render", "tiny", "--template", template, stdin=request).returncode, 2)
        self.assertEqual(onw("render", "tiny", stdin="{").returncode, 1)


class Measuring(unittest.TestCase):
    def test_devices_agree_to_the_bit_and_saved_logits_with_themselves(self):
        ids = FOLDER / "ids.txt"
        ids.write_text(" ".join(str(i * 7 % 250) for i in range(60)))
        saved = FOLDER / "saved.safetensors"
        done = onw("eval", "tiny", "--ids", ids, "--save-logits", saved, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["predictions"], 59)
        for against in (saved, "CPU"):
            found = json.loads(onw("eval", "tiny", "--ids", ids, "--device", "reference", "--against", against, "--json").stdout)
            self.assertEqual(found["against"]["max_kl"], 0)
            self.assertEqual(found["against"]["top1_agreement"], 1)
        found = json.loads(onw("eval", "tiny", "--ids", ids, "--against", "reference", "--json").stdout)
        self.assertGreater(found["against"]["mean_kl"], 0)
        worst = [layer["relative_rms"] for layer in found["against"]["worst_layers"]]
        self.assertEqual(len(worst), 2)
        self.assertTrue(0.5 > worst[0] >= worst[1] > 0, worst)
        other = FOLDER / "other.txt"
        other.write_text("[1, 2, 3]")
        done = onw("eval", "tiny", "--ids", other, "--against", saved)
        self.assertEqual(done.returncode, 1)
        self.assertIn("other ids", done.stderr)

    def test_bench_gives_figures_beside_roofs(self):
        picture = FOLDER / "bench.svg"
        done = onw("bench", "tiny", "--prompt", "16", "--decode", "4", "--depth", "0,32", "--batch", "1,2", "--json", "--svg", picture)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        self.assertEqual(set(found), {"machine", "device", "model", "roofs", "runs", "load_s", "peak_bytes"})
        self.assertEqual([(r["kind"], r["depth"], r["batch"]) for r in found["runs"]],
                         [(k, d, b) for b in (1, 2) for d in (0, 32) for k in ("prompt", "decode")])
        for run in found["runs"]:
            self.assertEqual(set(run), {"kind", "rows", "depth", "batch", "tokens_per_s", "bytes_per_s", "ops_per_s", "share"})
            self.assertGreater(run["tokens_per_s"], 0)
        self.assertIn("<svg", picture.read_text())
        self.assertGreaterEqual(found["roofs"]["ops_per_s"], found["roofs"]["vector_ops_per_s"])
        self.assertEqual(onw("bench", "tiny", "--depth", "5000").returncode, 1)

    # numerics-070
    def test_bench_replays_a_recording_with_drafts_and_without(self):
        recording = FOLDER / "recording.txt"
        recording.write_text(" ".join(str(i) for i in [*range(100), *range(100), *range(100)]))
        wanted = ["bench", "tiny", "--prompt", "0", "--decode", "60", "--depth", "130", "--no-load", "--replay", recording]
        for _ in range(5):  # a step of 20 microseconds is not always worth a draft on a machine that others use
            done = onw(*wanted, "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            (run,) = json.loads(done.stdout)["runs"]
            if run["drafted"] > 0:
                break
        self.assertGreater(run["plain_tokens_per_s"], 0)
        self.assertGreater(run["drafted"], 0)
        self.assertGreater(run["accepted"], run["drafted"] // 2)
        self.assertRegex(onw(*wanted).stdout, r"replay of 60 tokens at 130, 1 at once: .* times; \d+ of \d+ drafted tokens right")
        (run,) = json.loads(onw(*wanted, "--json", "--no-pld").stdout)["runs"]
        self.assertNotIn("drafted", run)
        short = onw(*wanted[:-2], "--replay", recording, "--depth", "290")
        self.assertEqual(short.returncode, 1)
        self.assertIn("the recording has 300 tokens", short.stderr)

    def test_bench_takes_no_acceptance_without_a_recording(self):
        done = onw("bench", "tiny", "--prompt", "0", "--decode", "3", "--no-load", "--accept", "85")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("give the recording, too, with --replay FILE", done.stderr)

    def test_bench_gives_the_usual_figures_as_far_as_the_context_reaches(self):
        done = onw("bench", "tiny", "--full", "--decode", "3", "--no-load", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = [(r["kind"], r["rows"], r["depth"], r["batch"]) for r in json.loads(done.stdout)["runs"]]
        self.assertEqual(found, [("prompt", 64, 0, 1), ("prompt", 512, 0, 1), ("prompt", 2048, 0, 1), ("decode", 3, 0, 1),
                                 ("decode", 3, 1024, 1), ("decode", 3, 0, 2), ("decode", 3, 0, 4), ("decode", 3, 0, 8)])
        self.assertIn("3 tokens at a depth of 8192, beyond the model's context of 2048", done.stderr)

    def test_bench_tells_where_the_time_goes(self):
        done = onw("bench", "tiny", "--prompt", "0", "--decode", "3", "--profile", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        (run,) = json.loads(done.stdout)["runs"]
        lines = {(line["op"], line["name"]): line for line in run["profile"]}
        self.assertEqual(lines["attention", "attention"]["calls"], 2)
        self.assertGreater(sum(line["weight_bytes"] for line in lines.values()), 0)
        self.assertEqual(lines["outside", ""]["weight_ops"], 0)
        table = onw("bench", "tiny", "--prompt", "16", "--decode", "0", "--profile").stdout
        self.assertIn("SHARE", table)

    def test_inspect_says_where_attention_inside_the_graphs_changes_nothing(self):
        for words in ["--device", "CPU"], []:  # and the default, where there is no OpenVINO
            done = onw("inspect", "tiny", *words, "--fused", "yes", ONW_OPENVINO_DIR="/no/such/folder")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("--fused yes changes nothing on CPU: graphs with attention inside are for the NPU and the GPU", done.stderr)
        self.assertNotIn("changes nothing", onw("inspect", "tiny", "--device", "CPU").stderr)

    def test_inspect_tells_formats_and_memory(self):
        found = json.loads(onw("inspect", "tiny", "--json", "--context", "512").stdout)
        self.assertEqual((found["family"], found["layers"]), ("llama", 2))
        self.assertEqual(found["memory"]["context"], 512)
        self.assertGreater(found["memory"]["state_bytes"], 0)
        self.assertIn("q4g64", found["formats"])
        self.assertIn("L01/attention", onw("inspect", "tiny", "--plan", "4").stdout)
        self.assertTrue(onw("inspect", "tiny", "--graph", "4").stdout.startswith("program llama"))
        self.assertIn("digraph", onw("inspect", "tiny", "--graph", "4", "--dot").stdout)
        listed = json.loads(onw("inspect", FOLDER / "published" / "tiny" / "model.safetensors", "--json").stdout)
        self.assertIn("lm_head.weight", [t["name"] for t in listed["tensors"]])


class Doctor(unittest.TestCase):
    def test_tells_what_there_is_as_text_and_json(self):
        done = onw("doctor")
        self.assertEqual(done.returncode, 0, done.stderr)
        for word in ("CPU", "instruction sets", "memory", "read bandwidth", "GB/s"):
            self.assertIn(word, done.stdout)
        found = json.loads(onw("doctor", "--json").stdout)
        self.assertGreater(found["roofs"]["read_bytes_per_s"], 0)
        self.assertIn(found["isa"], found["isas"])

    def test_tells_whether_models_lie_in_huge_pages_and_what_to_do(self):
        found = json.loads(onw("doctor", "--json").stdout)
        share, mode = found["huge_pages"]["share_of_files"], found["huge_pages"]["mode"]
        if share is None:
            self.skipTest("this system does not tell how files are mapped")
        advice = " ".join(found["advice"])
        self.assertEqual("small pages" in advice, share < 0.5 and mode != "never")
        self.assertEqual("Huge pages are off" in advice, mode == "never")
        self.assertEqual([p.name for p in harness.HOME.glob(".onw-*")], [])

    def test_a_report_holds_no_path_of_the_machine(self):
        done = onw("doctor", "--report")
        self.assertNotIn(str(harness.HOME), done.stdout)

    def test_tries_whether_models_and_cache_can_be_written_and_says_what_it_is_at(self):
        with tempfile.TemporaryDirectory() as folder:
            cache = pathlib.Path(folder)
            done = onw("doctor", ONW_CACHE=cache)
            self.assertNotIn("takes no file", done.stdout)
            self.assertEqual(done.stderr.count("this takes some seconds"), 1)
            self.assertEqual(list(cache.iterdir()), [])
            (cache / "blobs").write_text("a file in the folder's place")
            done = onw("doctor", ONW_CACHE=cache)
            self.assertIn(f"{cache / 'blobs'} takes no file. Let ONW_CACHE name a folder that can be written", done.stdout)
            self.assertNotIn("Nothing to mend", done.stdout)
            self.assertNotIn(folder, onw("doctor", "--report", ONW_CACHE=cache).stdout)

    def test_says_of_a_variable_what_is_wrong_and_once_what_to_do(self):
        found = json.loads(onw("doctor", "--json", ONW_OPENVINO_DIR="").stdout)
        self.assertNotIn("ONW_OPENVINO_DIR leads", " ".join(found["advice"]))
        text = onw("doctor", ONW_OPENVINO_DIR="/no/such/folder").stdout
        self.assertEqual(text.count("pip install openvino"), 1, text)
        self.assertIn("not found, see below", text)
        self.assertIn("'toaster' is not one of NPU, GPU", onw("doctor", ONW_DEVICE="toaster").stdout)
        for name in ("npu", "NPU"):
            self.assertIn("ONW_DEVICE is NPU, and no NPU works here", onw("doctor", ONW_DEVICE=name, ONW_OPENVINO_DIR="/no/such/folder").stdout)

    def test_says_when_less_is_used_than_there_is(self):
        found = json.loads(onw("doctor", "--json", ONW_ISA="generic").stdout)
        self.assertEqual(found["isa"], "generic")
        if len(found["isas"]) > 1:
            self.assertIn("unset ONW_ISA", " ".join(found["advice"]))


class Silence(unittest.TestCase):
    # platform/ui-168
    def test_nothing_but_our_own_words_reaches_stderr(self):
        for words in (["list"], ["check", "tiny"], ["list", "--json"], ["--version"]):
            self.assertEqual(onw(*words).stderr, "", words)


if __name__ == "__main__":
    os.chdir(harness.FOLDER.name)
    harness.main()
