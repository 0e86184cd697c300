#include "cli/engine_flags.h"

namespace onw::cli {

std::optional<KvFormat> kv_format(const Args& args) {
  const auto text = args.text("--kv");
  if (text == "int8") return KvFormat::int8;
  if (text == "f16") return KvFormat::f16;
  if (text == "f32") return KvFormat::f32;
  return std::nullopt;
}

EngineOptions engine_options(const Args& args) {
  EngineOptions options;
  options.device = args.text("--device");
  options.context_tokens = args.integer("--context").value_or(0);
  options.kv = kv_format(args);
  options.threads = static_cast<int>(args.integer("--threads").value_or(0));
  return options;
}

LoadOptions load_options(const Args& args) {
  LoadOptions options;
  options.device = args.text("--device");
  options.kv = kv_format(args);
  options.threads = static_cast<int>(args.integer("--threads").value_or(0));
  options.max_context = args.integer("--context").value_or(0);
  return options;
}

}  // namespace onw::cli
