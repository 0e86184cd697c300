#include "cli/commands.h"

#include <vector>

namespace onw::cli {

std::span<const Command> all_commands() {
  static const Positional kModel{
      "MODEL", "A model folder, the name of a model in the store, a .gguf file or a Hugging Face folder"};
  static const std::vector<Command> commands = {
      {"pull",
       "Brings a model from the hub, and converts it for this machine",
       "An interrupted pull goes on where it stopped. Everything is verified against the hub's digests.",
       {{"SOURCE", "A Hugging Face id (org/name), or the address of a repository or a file"}},
       run_pull},
      {"list", "Lists the models on this machine, and what is unfinished", "", {}, run_list},
      {"rm",
       "Removes a model, what is unfinished of one, or what is cached",
       "The cache keeps compiled graphs, layouts and measured tables; what is removed of it is made again when it is "
       "wanted. By itself onw removes compiled graphs beyond 64 GiB, those used longest ago first, and those of models "
       "that are gone or of another OpenVINO that nobody used for 30 days.",
       {{"NAME", "As onw list shows it; with --cache it may be left out", false}},
       run_rm},
      {"convert",
       "Turns a published model into a model folder",
       "Reads Hugging Face folders and .gguf files. Prints the format of each weight with its relative RMS error. An "
       "interrupted conversion goes on where it stopped.",
       {{"SRC", "A folder with config.json and safetensors, or a .gguf file"}, {"OUT", "The folder to make"}},
       run_convert},
      {"chat",
       "Talks with a model in the terminal",
       "A line is a message; a backslash at its end goes on, and lines of \"\"\" hold a longer one. Ctrl-C stops an "
       "answer or clears the line; on an empty line, twice, it ends. What was typed is kept in $ONW_HOME/chat_history. "
       "/clear begins anew, /help shows more. With --prompt the answer alone goes to stdout. A "
       "model "
       "without a chat template continues the text.",
       {kModel},
       run_chat},
      {"serve",
       "Answers over HTTP, as clients of OpenAI's API expect",
       "POST /v1/chat/completions (streamed or not), GET /v1/models, GET /health. Listens on this machine alone unless "
       "--host says otherwise. SIGTERM lets running answers finish, Ctrl-C stops them. Each request is a line on "
       "stderr: time, method, path, status, tokens, speed and how it ended; never what was said.",
       {kModel},
       run_serve},
      {"inspect",
       "Shows what a model is and takes, or what lies in a published file",
       "Dimensions, formats, bits per weight, and the memory at --context tokens. --graph, --plan, --ir and --dot "
       "show what the compiler makes of it.",
       {{"MODEL", "As for chat; a .gguf or .safetensors file is listed as it is"}},
       run_inspect},
      {"tokenize",
       "Cuts text on stdin into tokens, or puts tokens together",
       "Prints ids, pieces and offsets in bytes. The text is plain: added tokens in it stay text, unless --special.",
       {kModel},
       run_tokenize},
      {"render",
       "Renders a chat request on stdin as the prompt that the model reads",
       "A JSON object with messages, and where wanted tools, documents, add_generation_prompt, special_tokens, now; "
       "every "
       "other key is a variable of the template. The exact prompt goes to stdout, without a newline.",
       {{"MODEL", "Whose chat template to take (or --template)", false}},
       run_render},
      {"bench",
       "Times a model, beside what the machine could do",
       "Prints tokens/s with the bytes read and the integer operations of weights per second, and their share of the "
       "roofs, which are measured in the same run. Decoding is bound by reading, long prompts by operations.",
       {kModel},
       run_bench},
      {"eval",
       "Measures how well a model predicts a text, and how far two devices are apart",
       "Perplexity, and with --against KL divergence and agreement of the first choice. --against reference takes the "
       "reference without quantised activations.",
       {kModel},
       run_eval_command},
      {"check",
       "Checks that a model is whole",
       "What every start of chat and serve checks: weights, config, tokenizer and chat template; with --deep every "
       "byte "
       "of the weights against their digest. A published model is checked as it is, and not converted.",
       {kModel},
       run_check},
      {"compile",
       "Compiles a model's graphs for an NPU or a GPU ahead of the first question",
       "Several at once, each in a process of its own, as memory and processors allow. What is compiled lies in the "
       "cache (onw list --cache), and is not compiled again; what did not compile is not tried again, unless --again. "
       "Ctrl-C stops, and the same command goes on.",
       {kModel},
       run_compile},
      {"doctor", "Shows what this machine offers, and what to do about what it lacks", "", {}, run_doctor},
  };
  return commands;
}

}  // namespace onw::cli
