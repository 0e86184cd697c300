"""How each engine is asked for one case. Every function returns "value" in the case's unit, and what else a run tells."""
import json
import os
import pathlib
import subprocess
import tempfile

DECODED = 32       # tokens drawn in a decoding case
BATCH_PROMPT = 64  # tokens before each conversation of a batch

MEMORY_PROMPT = 512  # tokens before DECODED ones where memory is asked for

# What a case counts; of seconds and bytes the fewer the better.
UNITS = {"prompt": "tokens/s", "decode": "tokens/s", "batch": "tokens/s", "load": "s", "memory": "bytes", "store": "share"}

OPENVINO = r"""
import json, sys, time
import openvino_genai, numpy, openvino
path, kind, size, drawn, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
start = time.monotonic()
pipe = openvino_genai.LLMPipeline(path, "CPU", INFERENCE_NUM_THREADS=threads)
load = time.monotonic() - start
count = 1 if kind == "load" else max(size, 1)
def prompt(seed):  # another one each time: what it has seen it does not compute again
    return openvino.Tensor(numpy.array([[(i * 7919 + seed) % 1000 + 5 for i in range(count)]], dtype=numpy.int64))
mask = openvino.Tensor(numpy.ones((1, count), dtype=numpy.int64))
config = openvino_genai.GenerationConfig(max_new_tokens=1 if kind in ("prompt", "load") else drawn, ignore_eos=True)
values = []
for seed in range(3 if kind == "prompt" or kind == "decode" and size < 1000 else 1):
    metrics = pipe.generate(openvino_genai.TokenizedInputs(prompt(seed + 13), mask), config).perf_metrics
    values.append(count / metrics.get_ttft().mean * 1e3 if kind == "prompt" else 1e3 / metrics.get_tpot().mean if kind == "decode" else 0)
value = sorted(values)[len(values) // 2]
if kind == "load":
    value = load
if kind == "memory":
    value = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(json.dumps({"value": value, "version": openvino_genai.__version__}))
"""


class CannotDo(Exception):
    """The engine has no way to run the case, or failed; the text says why."""


def run(words, timeout=220, all_output=False, more_env=None):
    try:
        with tempfile.TemporaryDirectory() as place:  # some leave logs where they run
            done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=timeout, cwd=place,
                                  env={**os.environ, **(more_env or {})})
    except subprocess.TimeoutExpired:
        raise CannotDo(f"longer than {timeout} s") from None
    if done.returncode != 0:
        if done.returncode < 0:
            raise CannotDo(f"crashed with signal {-done.returncode}")
        lines = [line for line in done.stderr.strip().splitlines() if line.strip()]
        raise CannotDo(lines[-1][:200] if lines else f"exit code {done.returncode}")
    return done.stdout + done.stderr if all_output else done.stdout


def _folder_share(program, model):
    """The converted model's weights file over the codes, scales and minima in it."""
    weights = json.loads(run([program, "inspect", model, "--json"]))["formats"]
    stored = sum(path.stat().st_size for path in pathlib.Path(model).glob("*.safetensors"))
    return {"value": stored / sum(use["bytes"] for use in weights.values()), "version": run([program, "--version"]).split()[-1]}


def onw(program, model, kind, size, threads, device="CPU", isa=""):
    if kind == "store":
        return _folder_share(program, model)
    words = [program, "bench", model, "--json", "--threads", threads, "--device", device]
    words += ["--no-load"] if kind != "load" else []
    words += {"prompt": ["--prompt", size, "--decode", 0],
              "decode": ["--prompt", 0, "--decode", DECODED, "--depth", size],
              "batch": ["--prompt", 0, "--decode", DECODED, "--depth", BATCH_PROMPT, "--batch", size],
              "load": ["--prompt", 1, "--decode", 0],
              "memory": ["--prompt", size, "--decode", DECODED]}[kind]
    found = json.loads(run(words, more_env={"ONW_ISA": isa} if isa else None))
    told = {"isa": found["machine"]["isa"], "version": run([program, "--version"]).split()[-1]}
    if kind == "load":
        return {"value": found["load_s"]["warm"], "cold_s": found["load_s"]["cold"], "peak_bytes": found["peak_bytes"], **told}
    if kind == "memory":
        return {"value": found["peak_bytes"], **told}
    (timed,) = found["runs"]
    speed = timed["tokens_per_s"]
    return {"value": speed, "bytes_per_token": timed["bytes_per_s"] / speed, "ops_per_token": timed["ops_per_s"] / speed,
            "peak_bytes": found["peak_bytes"], "roofs": found["roofs"], **told}


def _speeds_only(kind):
    if UNITS[kind] != "tokens/s":
        raise CannotDo("asked for speeds only")


def _llama_bench(program, words):
    (found,) = json.loads(run([program, "-o", "json", *words]))
    return {"value": found["avg_ts"], "version": found.get("build_commit") or str(found.get("build_number"))}


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
    return {"value": float(figures["S_TG t/s"]), "version": ""}


def llama(folder, gguf, kind, size, threads):
    _speeds_only(kind)
    program = pathlib.Path(folder) / "llama-bench"
    if kind == "batch":
        return _batched(folder, gguf, size, threads)
    rounds = 1 if kind == "decode" and size > 0 else 3
    words = ["-m", gguf, "-t", threads, "-r", rounds]
    words += ["-p", size, "-n", 0] if kind == "prompt" else ["-p", 0, "-n", DECODED, "-d", size]
    return _llama_bench(program, words)


def ik(folder, gguf, kind, size, threads):
    """With the options under which it is fastest: repacking doubles its decoding and costs its prompts a tenth."""
    _speeds_only(kind)
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
    if kind in ("batch", "store"):
        raise CannotDo({"batch": "not asked for batches", "store": "reads the GGUF itself"}[kind])
    return json.loads(run([python, "-c", OPENVINO, gguf, kind, size, DECODED, threads]).strip().splitlines()[-1])


PEERS = {"llama": llama, "ik": ik, "openvino": openvino}
