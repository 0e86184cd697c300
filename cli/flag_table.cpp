#include <array>

#include "cli/flags.h"
#include "runtime/sampling_limits.h"

namespace onw::cli {
namespace {

constexpr double kMany = 9e15;  // integers up to here are exact as double

constexpr auto kFlags = std::to_array<Flag>({
    // What runs, and where.
    {"--device", Kind::choice, "NPU|GPU|CPU|openvino:CPU|reference", "", "ONW_DEVICE", "chat serve bench eval inspect",
     "What computes: the NPU or GPU, this machine's CPU, OpenVINO's CPU device, or the slow and obvious reference "
     "(default: the NPU where one works, else the CPU)"},
    {"--context", Kind::integer, "N", "", "ONW_CONTEXT", "chat serve inspect bench eval",
     "Tokens of context (default: the least of the model's, what memory allows, and 32768)", 1, kMany},
    {"--kv", Kind::choice, "int8|f16|f32", "", "ONW_KV", "chat serve bench eval inspect",
     "How keys and values are kept (default: the model's)"},
    {"--threads", Kind::integer, "N", "", "ONW_THREADS", "chat serve bench eval inspect",
     "Threads that compute (default: one per physical core, within the quota of the process)", 1, 4096},
    {"--no-pld", Kind::toggle, "", "", "", "chat serve bench",
     "Does not draft tokens by looking them up in the conversation; answers are the same, and slower where they repeat "
     "it"},
    {"--no-mtp", Kind::toggle, "", "", "", "chat serve bench",
     "Does not draft tokens by the layer that some models bring for it (MTP); answers are the same, and come slower"},
    {"--pld-earlier", Kind::toggle, "", "", "", "chat serve",
     "Looks them up in earlier conversations too, whoever's they are: how fast an answer comes then hints at what "
     "others "
     "said"},

    {"--fused", Kind::choice, "auto|yes|no", "auto", "ONW_FUSED", "chat serve bench eval inspect",
     "NPU and GPU: whether graphs with attention inside are made beside the answers, which then take fewer steps of "
     "the "
     "host's and more memory (auto: for an NPU, where memory allows)"},

    {"--device", Kind::choice, "NPU|GPU", "NPU", "", "compile", "What to compile for"},
    {"--platform", Kind::choice, "3720|4000|5010", "", "", "compile",
     "Compiles for an NPU of this generation, which need not be here; the NPU compiler's library must"},
    {"--fused", Kind::choice, "auto|yes|no", "auto", "ONW_FUSED", "compile",
     "Whether graphs with attention inside are compiled, too (auto: for an NPU, where memory allows)"},
    {"--context", Kind::integer, "N", "", "", "compile",
     "Those for conversations of so many tokens: 1024, 2048, 4096, ... 32768 (default: 1024), each with the weights "
     "once more on the disk",
     1, kMany},
    {"--again", Kind::toggle, "", "", "", "compile", "Tries anew what did not compile before"},

    // One answer.
    {"--prompt", Kind::text, "TEXT", "", "", "chat", "Answers this once: the answer alone goes to stdout"},
    {"--max-tokens", Kind::integer, "N", "", "", "chat", "At most so many tokens per answer", 1, kMany},
    {"--temperature", Kind::number, "T", "", "", "chat", "0 takes the most likely token (default: the model's)",
     kTemperatureRange.min, kTemperatureRange.max},
    {"--top-p", Kind::number, "P", "", "", "chat", "Draws from the likeliest tokens that sum to P", kTopPRange.min,
     kTopPRange.max},
    {"--top-k", Kind::integer, "K", "", "", "chat", "Draws from the K likeliest tokens; 0: all", kTopKRange.min,
     kTopKRange.max},
    {"--min-p", Kind::number, "P", "", "", "chat", "Leaves out tokens below P times the likeliest", kMinPRange.min,
     kMinPRange.max},
    {"--seed", Kind::integer, "N", "", "", "chat", "Same seed, same answer", 0, kMany},
    {"--system", Kind::text, "TEXT", "", "", "chat", "What the model is told before the conversation"},
    {"--think", Kind::toggle, "", "", "", "chat",
     "Lets a model that can think do so, and shows its thoughts on stderr"},

    // The server.
    {"--host", Kind::text, "ADDRESS", "localhost", "ONW_HOST", "serve",
     "Address to listen on; 0.0.0.0 opens the server to the network"},
    {"--port", Kind::integer, "N", "8000", "ONW_PORT", "serve", "Port to listen on; 0 takes a free one", 0, 65535},
    {"--api-key", Kind::text, "KEY", "", "ONW_API_KEY", "serve", "Requests to /v1 must carry it as a bearer token"},
    {"--allow-host", Kind::text, "NAME,…", "", "ONW_ALLOW_HOST", "serve",
     "Further names under which the server may be addressed (the Host header)"},
    {"--allow-origin", Kind::text, "ORIGIN,…", "", "ONW_ALLOW_ORIGIN", "serve",
     "Web pages that may use the server, such as https://example.org; * for all"},
    {"--sessions", Kind::integer, "N", "32", "ONW_SESSIONS", "serve", "Answers at the same time; further ones wait", 1,
     4096},
    {"--quiet", Kind::toggle, "", "", "", "serve", "Leaves out the line per request on stderr"},
    {"--open", Kind::toggle, "", "", "", "serve", "Opens the server's page in the browser once it answers"},

    // Models.
    {"--revision", Kind::text, "REV", "", "", "pull", "Branch, tag or commit (default: main)"},
    {"--file", Kind::text, "NAME", "", "", "pull", "Takes only this file of a repository that has several models"},
    {"--for", Kind::choice, "cpu|npu", "cpu", "", "convert pull", "The device class whose layout and formats to write"},
    {"--format", Kind::text, "FORMAT", "", "", "convert pull",
     "Weight format, such as q4g128, q8c, nf4c, u2g128, f16 (default: without loss from GGUF, else the device's)"},
    {"--importance", Kind::text, "FILE", "", "", "convert",
     "How large activations were on a text (tools/importance.py): weighs errors of 4-bit weights, equalises inputs of "
     "8-bit ones"},
    {"--residual-shift", Kind::integer, "N", "0", "", "convert pull",
     "Divides the residual stream by 2^N, so that it stays within FP16 on an NPU; no logit changes", 0, 12},
    {"--graphs-only", Kind::toggle, "", "", "", "convert",
     "Writes no model, but the graphs that OpenVINO gets of MODEL, into folders of OUT by their number of rows"},
    {"--rows", Kind::integers, "N,…", "1,64", "", "convert",
     "With --graphs-only: rows of the graphs, for decoding and for "
     "prompts",
     1, 65536},
    {"--platform", Kind::choice, "openvino:CPU|3720|4000|5010", "openvino:CPU", "", "convert inspect",
     "Whose graphs --graphs-only and --ir write: OpenVINO's CPU device, or an NPU generation"},
    {"--replace", Kind::toggle, "", "", "", "convert pull", "Puts the new model in the place of one that is there"},
    {"--keep", Kind::toggle, "", "", "", "pull", "Keeps the published files beside the converted model"},
    {"--yes", Kind::toggle, "", "", "", "rm", "Does not ask"},
    {"--deep", Kind::toggle, "", "", "", "check", "Reads every byte, and compares the digests"},
    {"--numerics", Kind::choice, "npu", "", "", "check",
     "Also runs eight tokens with this arithmetic, and says by layer what is lost"},

    // Text.
    {"--bos", Kind::toggle, "", "", "", "tokenize", "Puts the model's BOS token in front"},
    {"--special", Kind::toggle, "", "", "", "tokenize", "Matches added tokens in the text, as the Python library does"},
    {"--decode", Kind::toggle, "", "", "", "tokenize", "The other way: ids on stdin, text on stdout"},
    {"--template", Kind::text, "FILE", "", "", "render", "Renders this chat template instead of a model's"},

    // Measuring.
    {"--text", Kind::text, "FILE", "", "", "eval", "Text to evaluate on"},
    {"--ids", Kind::text, "FILE", "", "", "eval",
     "Token ids to evaluate on: decimal, or a JSON array; nothing is added"},
    {"--quantised", Kind::choice, "yes|no", "yes", "", "eval",
     "Whether activations are quantised (no: reference and openvino:CPU)"},
    {"--against", Kind::text, "DEVICE|FILE", "", "", "eval",
     "Compares with another device, or with logits saved before (.safetensors)"},
    {"--save-logits", Kind::text, "FILE", "", "", "eval", "Writes ids and logits as safetensors"},
    {"--prompt", Kind::integers, "N,…", "64,512", "", "bench", "Lengths of the prompts to time; 0: none", 0, kMany},
    {"--decode", Kind::integer, "N", "64", "", "bench", "Tokens to draw; 0: none", 0, kMany},
    {"--depth", Kind::integers, "N,…", "0", "", "bench", "Tokens in the cache before the measured ones", 0, kMany},
    {"--batch", Kind::integers, "N,…", "1", "", "bench", "Conversations at the same time", 1, 4096},
    {"--full", Kind::toggle, "", "", "", "bench",
     "The usual figures instead: prompts of 64, 512 and 2048; decoding at 0, 1k, 8k and 16k; 2, 4 and 8 conversations"},
    {"--replay", Kind::text, "FILE", "", "", "bench",
     "Takes recorded token ids as the draws, from --depth on what went before; decoding is timed with drafts and "
     "without"},
    {"--accept", Kind::integers, "P", "", "", "bench",
     "With --replay: the MTP layer computes as ever, but its first, second, ... guess is the recorded token in P of "
     "100 "
     "cases, for weights that predict nothing (85,75: the last holds for later guesses)",
     0, 100},
    {"--no-load", Kind::toggle, "", "", "", "bench", "Leaves the page cache alone: loading is not timed"},
    {"--profile", Kind::toggle, "", "", "", "bench", "Also where the time of a prompt or step goes, op by op"},

    // Looking inside.
    {"--graph", Kind::integer, "ROWS", "", "", "inspect", "Prints the graph that the CPU runs", 1, 65536},
    {"--primitive", Kind::toggle, "", "", "", "inspect", "With --graph: as the family wrote it, lowered to primitives"},
    {"--plan", Kind::integer, "ROWS", "", "", "inspect", "Prints the fused steps for that many rows, and their memory",
     1, 65536},
    {"--ir", Kind::integer, "ROWS", "", "", "inspect",
     "Writes the graphs that OpenVINO would get for that many rows, each with its constants, into the folder of --out",
     1, 65536},
    {"--out", Kind::text, "FOLDER", "", "", "inspect", "With --ir: where to; made where it is missing"},
    {"--dot", Kind::toggle, "", "", "", "inspect", "With --graph: as a picture for Graphviz"},

    // Output.
    {"--json", Kind::toggle, "", "", "", "list inspect tokenize bench eval doctor check", "JSON for programs"},
    {"--csv", Kind::toggle, "", "", "", "bench", "Comma-separated values"},
    {"--svg", Kind::text, "FILE", "", "", "bench", "Draws the figures"},
    {"--report", Kind::toggle, "", "", "", "doctor", "Text to paste into a report of a fault"},
    {"--cache", Kind::toggle, "", "", "", "list",
     "Also what lies in the cache: layouts, compiled graphs and measured tables"},
    {"--cache", Kind::toggle, "", "", "", "rm",
     "Removes what is cached, and no model: all of it, or with NAME what is of that model"},
    {"--unused", Kind::toggle, "", "", "", "rm",
     "With --cache: layouts and compiled graphs of models that are gone, graphs of another OpenVINO, what is damaged "
     "or "
     "not onw's"},
});

constexpr auto kVariables = std::to_array<Variable>({
    {"ONW_HOME", "Models and settings (default: $XDG_DATA_HOME/onw)"},
    {"ONW_CACHE", "Layouts, compiled graphs and measured tables; may be deleted (default: $XDG_CACHE_HOME/onw)"},
    {"ONW_ISA", "Forces an instruction set: generic, avx2, avxvnni, avx512vnni, amx"},
    {"ONW_OPENVINO_DIR", "The folder with OpenVINO's libraries (default: the wheel of a Python, an installed package)"},
    {"ONW_NPU_STAND_IN",
     "CPU: for tests, the NPU's path in OpenVINO with its CPU device in the NPU's place (--device NPU)"},
    {"HF_ENDPOINT", "Where models are pulled from (default: https://huggingface.co)"},
    {"HF_TOKEN", "Token for models that ask for a licence or are private"},
    {"HTTPS_PROXY, HTTP_PROXY, NO_PROXY", "Proxies for downloads"},
});

}  // namespace

std::span<const Flag> all_flags() { return kFlags; }
std::span<const Variable> all_variables() { return kVariables; }

}  // namespace onw::cli
