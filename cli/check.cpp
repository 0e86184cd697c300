// onw check: is a model whole, a converted one or a published one?
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/model.h"
#include "cli/output.h"
#include "cli/text_side.h"
#include "convert/convert.h"
#include "runtime/load.h"
#include "server/served_model.h"
#include "targets/reference/npu_check.h"

namespace onw::cli {
namespace {

using nlohmann::ordered_json;

Result<void> print_json(const ordered_json& facts) {
  return print("{}\n", facts.dump(2, ' ', false, ordered_json::error_handler_t::replace));
}

std::string_view words(const TextSide& text) {
  if (!text.tokenizer) return "there is no tokenizer.json, so chat and serve cannot run it";
  return text.chat_template ? "tokenizer and chat template load" : "the tokenizer loads; there is no chat template";
}

// A file or folder as it was published: it is not converted for that.
Result<void> check_source(const std::string& path, const Args& args) {
  if (args.has("--numerics"))
    return error(Code::usage, "--numerics runs a converted model, and {} is none yet: onw convert {} OUT", path, path);
  if (args.has("--deep"))
    return error(Code::usage,
                 "{} is not converted, so there are no digests that --deep could compare with. Leave --deep out, or "
                 "convert it: onw convert {} OUT",
                 path, path);
  TextSide text;
  const auto facts = check_published(path, [&text](const std::filesystem::path& folder, int64_t vocabulary) {
    const auto checked = check_text_side(folder, vocabulary);
    if (checked) text = *checked;
    return checked ? Result<void>() : Result<void>(Failure(checked.error()));
  });
  RETURN_IF_ERROR(facts);
  if (args.has("--json"))
    return print_json({{"source", path},
                       {"converted", false},
                       {"faults", 0},
                       {"family", facts->family},
                       {"weights", facts->weights},
                       {"bytes", facts->bytes},
                       {"tokenizer", text.tokenizer},
                       {"chat_template", text.chat_template}});
  return print("{}: no fault in the header and the shapes of {} weights ({}); {}. Not converted, its bytes not read\n",
               path, facts->weights, bytes_text(facts->bytes), words(text));
}

// Eight tokens from all over the vocabulary.
Result<std::vector<NpuLayer>> npu_layers(const OpenedModel& model) {
  const auto weights = row_weights(model);
  RETURN_IF_ERROR(weights);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < 8; ++i) tokens.push_back(static_cast<int32_t>(model.program.vocabulary * (2 * i + 1) / 16));
  auto layers = check_npu(model.program, *weights, tokens);
  if (layers || layers.error().code != Code::unsupported) return layers;
  return error(
      Code::unsupported,
      "{} models have steps that --numerics npu cannot show in the NPU's arithmetic, because the host computes "
      "them beside an NPU ({}). What the model loses as served: onw eval MODEL --text FILE --against reference",
      model.program.family, layers.error().message);
}

ordered_json to_json(const std::vector<NpuLayer>& layers) {
  auto list = ordered_json::array();
  for (const NpuLayer& l : layers) {
    ordered_json row = {{"layer", l.name},          {"largest", l.largest}, {"values", l.values},
                        {"overflows", l.overflows}, {"lost", l.lost},       {"relative_rms", nullptr}};
    if (std::isfinite(l.relative_rms)) row["relative_rms"] = l.relative_rms;
    list.push_back(std::move(row));
  }
  return list;
}

Result<void> print_layers(const std::vector<NpuLayer>& layers) {
  std::string text = "layer     largest  overflows  too small  difference to FP32\n";
  for (const NpuLayer& l : layers)
    text += fmt::format("{:<6} {:>10.4g} {:>10} {:>9.2f} % {:>19.2e}\n", l.name, l.largest, l.overflows,
                        100 * static_cast<double>(l.lost) / static_cast<double>(std::max<int64_t>(l.values, 1)),
                        l.relative_rms);
  return print("{}", text);
}

}  // namespace

Result<void> run_check(const Args& args) {
  if (is_published(args.positional(0))) return check_source(args.positional(0), args);
  const auto folder = locate_model(args.positional(0));
  RETURN_IF_ERROR(folder);
  const auto model = open_model(*folder);
  RETURN_IF_ERROR(model);
  const auto text = check_text_side(*folder, model->program.vocabulary);
  RETURN_IF_ERROR(text);
  RETURN_IF_ERROR(server::recommended_sampling(*model->folder));
  const bool deep = args.has("--deep");
  if (deep) RETURN_IF_ERROR(model->folder->check_deep());
  const auto bytes = model->folder->weights().bytes() + model->folder->experts().bytes();
  std::vector<NpuLayer> layers;
  if (args.has("--numerics")) {
    auto checked = npu_layers(*model);
    RETURN_IF_ERROR(checked);
    layers = std::move(*checked);
    if (!args.has("--json")) RETURN_IF_ERROR(print_layers(layers));
  }
  if (args.has("--json")) {
    ordered_json facts = {{"folder", folder->string()},
                          {"faults", 0},
                          {"deep", deep},
                          {"bytes", bytes},
                          {"tokenizer", text->tokenizer},
                          {"chat_template", text->chat_template}};
    if (!layers.empty()) facts["npu"] = to_json(layers);
    return print_json(facts);
  }
  if (deep) return print("{} is whole: {}, every byte read; {}\n", folder->string(), bytes_text(bytes), words(*text));
  return print("{}: no fault in the header, the length and samples of {} (--deep reads every byte); {}\n",
               folder->string(), bytes_text(bytes), words(*text));
}

}  // namespace onw::cli
