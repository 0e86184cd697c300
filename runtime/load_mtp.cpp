#include "runtime/load_mtp.h"

#include <fmt/ranges.h>

#include <utility>

#include "models/mtp.h"
#include "models/registry.h"
#include "passes/bind_formats.h"
#include "quant/relayout.h"

namespace onw {
namespace {

// The whole head, of which the short one is the beginning.
std::string_view whole_head(const Program& program) { return program.weight("head") != nullptr ? "head" : "embed"; }

Result<void> check_shapes(const Program& p, const ModelFolder& folder) {
  for (const WeightDecl& w : p.weights) {
    if (w.name == kShortHead) continue;
    const std::vector<int64_t> stored = folder.shape(w.name);
    if (stored.empty())
      return error(Code::missing_tensor,
                   "the model folder has no weight '{}': the published files lack the layer, or the folder was made "
                   "before onw knew it (then convert again)",
                   w.name);
    if (stored != w.shape)
      return error(Code::bad_format, "'{}' is [{}], config.json makes it [{}]: convert again", w.name,
                   fmt::join(stored, ", "), fmt::join(w.shape, ", "));
  }
  return {};
}

Result<std::optional<Program>> open(const OpenedModel& model) {
  auto program = build_mtp_program(model.folder->config());
  RETURN_IF_ERROR(program);
  if (!*program) return std::nullopt;
  RETURN_IF_ERROR(check_shapes(**program, *model.folder));
  const auto format_of = [&](std::string_view name) -> std::optional<WeightFormat> {
    const auto weight = model.folder->weight(name == kShortHead ? whole_head(**program) : name);
    return weight ? std::optional(weight->format) : std::nullopt;
  };
  RETURN_IF_ERROR(bind_formats(**program, format_of));
  return program;
}

}  // namespace

OpenedMtp open_mtp(const OpenedModel& model) {
  auto program = open(model);
  if (!program) return {std::nullopt, program.error().message};
  return {std::move(*program), ""};
}

Program with_mtp_weights(const OpenedModel& model, const OpenedMtp& mtp) {
  Program all = model.program;
  if (mtp.program)
    for (const WeightDecl& w : mtp.program->weights)
      if (w.name != kShortHead && all.weight(w.name) == nullptr) all.weights.push_back(w);
  return all;
}

// Without the files: pages that both use are moved to huge ones by the model alone.
WeightSet mtp_weights(const Program& mtp, const WeightSet& weights) {
  const WeightDecl* few = mtp.weight(kShortHead);
  if (few == nullptr) return {weights.find, weights.owner, {}};
  const auto find = [whole = std::string(whole_head(mtp)), rows = few->shape[0],
                     find = weights.find](std::string_view name) -> Result<WeightView> {
    if (name != kShortHead) return find(name);
    const auto head = find(whole);
    RETURN_IF_ERROR(head);
    return block_view(*head, 0, rows / 16);
  };
  return {find, weights.owner, {}};
}

int64_t shared_weight_bytes(const OpenedModel& model, const Program& mtp, const WeightSet& weights) {
  int64_t bytes = 0;
  for (const WeightDecl& w : mtp.weights)
    if (w.name == kShortHead || model.program.weight(w.name) != nullptr)
      if (const auto view = weights.find(w.name)) bytes += view->stored_bytes();
  return bytes;
}

}  // namespace onw
