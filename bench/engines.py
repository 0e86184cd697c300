"""How each engine is asked for one case. Every function returns tokens per second, and what else a run tells."""
import json
import pathlib
import subprocess

DECODED = 32       # tokens drawn in a decoding case
BATCH_PROMPT = 64  # tokens before each conversation of a batch

OPENVINO = r"""
import json, sys
import openvino_genai, numpy, openvino
path, kind, size, drawn, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
pipe = openvino_genai.LLMPipeline(path, "CPU", INFERENCE_NUM_THREADS=threads)
count = size if kind == "prompt" else max(size, 1)
def prompt(seed):  # another one each time: what it has seen it does not compute again
    return openvino.Tensor(numpy.array([[(i * 7919 + seed) % 1000 + 5 for i in range(count)]], dtype=numpy.int64))
mask = openvino.Tensor(numpy.ones((1, count), dtype=numpy.int64))
config = openvino_genai.GenerationConfig(max_new_tokens=1 if kind == "prompt" else drawn, ignore_eos=True)
best = []
for seed in range(3 if kind == "prompt" or size < 1000 else 1):
    metrics = pipe.generate(openvino_genai.TokenizedInputs(prompt(seed + 13), mask), config).perf_metrics
    best.append(count / metrics.get_ttft().mean * 1e3 if kind == "prompt" else 1e3 / metrics.get_tpot().mean)
print(json.dumps({"tokens_per_s": sorted(best)[len(best) // 2], "version": openvino_genai.__version__}))
"""


class CannotDo(Exception):
    """The engine has no way to run the case, or failed; the text says why."""


def run(words, timeout=220, all_output=False):
    try:
        done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise CannotDo(f"longer than {timeout} s") from None
    if done.returncode != 0:
        if done.returncode < 0:
            raise CannotDo(f"crashed with signal {-done.returncode}")
        lines = [line for line in done.stderr.strip().splitlines() if line.strip()]
        raise CannotDo(lines[-1][:200] if lines else f"exit code {done.returncode}")
    return done.stdout + done.stderr if all_output else done.stdout


def onw(program, model, kind, size, threads):
    words = [program, "bench", model, "--json", "--no-load", "--threads", threads]
    if kind == "prompt":
        words += ["--prompt", size, "--decode", 0]
    elif kind == "decode":
        words += ["--prompt", 0, "--decode", DECODED, "--depth", size]
    else:
        words += ["--prompt", 0, "--decode", DECODED, "--depth", BATCH_PROMPT, "--batch", size]
    found = json.loads(run(words))
    return {"tokens_per_s": found["runs"][0]["tokens_per_s"], "bytes_per_s": found["runs"][0]["bytes_per_s"],
            "ops_per_s": found["runs"][0]["ops_per_s"], "roofs": found["roofs"], "isa": found["machine"]["isa"],
            "version": run([program, "--version"]).split()[-1]}


def _llama_bench(program, words):
    (found,) = json.loads(run([program, "-o", "json", *words]))
    return {"tokens_per_s": found["avg_ts"], "version": found.get("build_commit") or str(found.get("build_number"))}


def _batched(folder, gguf, size, threads, *more):
    program = pathlib.Path(folder) / "llama-batched-bench"
    if not program.exists():
        raise CannotDo("llama-batched-bench is not there")
    context = size * (BATCH_PROMPT + DECODED) + 512
    text = run([program, "-m", gguf, "-c", context, "-npp", BATCH_PROMPT, "-ntg", DECODED, "-npl", size, "-t", threads,
                "-tb", threads, *more], all_output=True)
    names, figures = None, None  # a table; some builds print it as log
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if "S_TG t/s" in cells:
            names = cells
        elif names and len(cells) == len(names) and not cells[0].startswith("-"):
            figures = dict(zip(names, cells))
    if figures is None:
        raise CannotDo("llama-batched-bench printed no figures")
    return {"tokens_per_s": float(figures["S_TG t/s"]), "version": ""}


def llama(folder, gguf, kind, size, threads):
    program = pathlib.Path(folder) / "llama-bench"
    if kind == "batch":
        return _batched(folder, gguf, size, threads)
    rounds = 1 if kind == "decode" and size > 0 else 3
    words = ["-m", gguf, "-t", threads, "-r", rounds]
    words += ["-p", size, "-n", 0] if kind == "prompt" else ["-p", 0, "-n", DECODED, "-d", size]
    return _llama_bench(program, words)


def ik(folder, gguf, kind, size, threads):
    """With the options under which it is fastest: repacking doubles its decoding and costs its prompts a tenth."""
    program = pathlib.Path(folder) / "llama-bench"
    if kind == "batch":
        return _batched(folder, gguf, size, threads, "-rtr")
    rounds = 1 if kind == "decode" and size > 0 else 3
    words = ["-m", gguf, "-t", threads, "-r", rounds, "-fa", 1]
    if kind == "prompt":
        words += ["-p", size, "-n", 0]
        return _llama_bench(program, words)
    words += ["-rtr", 1]
    if size == 0:
        words += ["-p", 0, "-n", DECODED]
    else:
        words += ["-p", 0, "-n", 0, "-gp", f"{size},{DECODED}"]
    return _llama_bench(program, words)


def openvino(python, gguf, kind, size, threads):
    if kind == "batch":
        raise CannotDo("not asked for batches")
    return json.loads(run([python, "-c", OPENVINO, gguf, kind, size, DECODED, threads]).strip().splitlines()[-1])


PEERS = {"llama": llama, "ik": ik, "openvino": openvino}
