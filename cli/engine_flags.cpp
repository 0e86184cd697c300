#include "cli/engine_flags.h"

#include <memory>

#include "cli/progress.h"

namespace onw::cli {

std::optional<KvFormat> kv_format(const Args& args) {
  const auto text = args.text("--kv");
  if (text == "int8") return KvFormat::int8;
  if (text == "f16") return KvFormat::f16;
  if (text == "f32") return KvFormat::f32;
  return std::nullopt;
}

std::optional<bool> fused(const Args& args) {
  const auto text = args.text("--fused");
  return text == "yes" || text == "no" ? std::optional(text == "yes") : std::nullopt;
}

std::string fused_remark(const Args& args, std::string_view device) {
  const auto wanted = fused(args);
  const std::string variable = args.variable("--fused");
  if (!wanted || device == "NPU" || device == "GPU" || (!*wanted && !variable.empty())) return "";
  return fmt::format("{} changes nothing on {}: graphs with attention inside are for the NPU and the GPU",
                     variable.empty() ? fmt::format("--fused {}", *wanted ? "yes" : "no") : variable, device);
}

// Some models are laid out anew for this CPU the first time.
static LoadObserver layout_progress() {
  return [progress = std::shared_ptr<Progress>()](int64_t done, int64_t total) mutable {
    if (!progress) progress = std::make_shared<Progress>("laying out weights", total, Progress::Unit::bytes);
    progress->update(done, total);
    if (done >= total) progress.reset();
    return true;
  };
}

EngineOptions engine_options(const Args& args) {
  EngineOptions options;
  options.device = args.text("--device");
  options.device_chosen_by = args.variable("--device");
  options.context_tokens = args.integer("--context").value_or(0);
  options.kv = kv_format(args);
  options.fused = fused(args);
  options.threads = static_cast<int>(args.integer("--threads").value_or(0));
  options.prompt_lookup = !args.has("--no-pld");
  options.mtp = !args.has("--no-mtp");
  options.lookup_in_earlier = args.has("--pld-earlier");
  options.load_observer = layout_progress();
  return options;
}

LoadOptions load_options(const Args& args) {
  LoadOptions options;
  options.device = args.text("--device");
  options.device_chosen_by = args.variable("--device");
  options.kv = kv_format(args);
  options.threads = static_cast<int>(args.integer("--threads").value_or(0));
  options.max_context = args.integer("--context").value_or(0);
  options.observer = layout_progress();
  options.fused = fused(args);
  return options;
}

std::string describe(const EngineSetup& engine) {
  const std::string& hardware = engine.model.hardware;
  const std::string& why = engine.device_reason;
  std::string drafts = engine.mtp ? ", drafts by the model's MTP layer" : "";
  if (!engine.no_mtp_reason.empty()) drafts = fmt::format(", no drafts by the MTP layer: {}", engine.no_mtp_reason);
  return fmt::format("{}{}{}, context of {} tokens ({}){}", engine.device,
                     hardware.empty() ? "" : " (" + hardware + ")", why.empty() ? "" : ": " + why,
                     engine.context_tokens, engine.context_reason, drafts);
}

}  // namespace onw::cli
