#include "convert/mtp_weights.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "convert/write_experts.h"
#include "models/registry.h"

namespace onw {
namespace {

// Whether any of the names is there; for experts that of the first, or of the stack.
bool is_there(const ModelSource& source, WeightSource from) {
  for (std::string& name : from.names)
    if (const size_t at = name.find("{e}"); at != name.npos) name.replace(at, 3, "0");
  const auto found = source.find(from);
  return !found || found->has_value();  // one that cannot be read is told by who reads it
}

// GGUF files may bring an embedding or a head for this layer alone.
Result<void> check_shared(const Program& program, const ModelSource& source) {
  for (const char* part : {"embed_tokens", "shared_head_head"}) {
    const std::string name = fmt::format("blk.{}.nextn.{}.weight", program.layers, part);
    if (is_there(source, {{name}}))
      return error(Code::unsupported, "'{}' is its own, and only the model's embedding and head are used", name);
  }
  return {};
}

Result<void> check_all(const std::vector<WeightDecl>& weights, const ModelSource& source,
                       const FormatRequest& request) {
  Program of_experts;
  for (const WeightDecl& w : weights) {
    if (w.role == WeightRole::expert) {
      of_experts.weights.push_back(w);
      continue;
    }
    const auto tensor = tensor_of(source, w);
    RETURN_IF_ERROR(tensor);
  }
  const auto experts = plan_experts(of_experts, source, request);
  RETURN_IF_ERROR(experts);
  return {};
}

}  // namespace

MtpWeights find_mtp_weights(const Program& program, const ModelSource& source, const FormatRequest& request,
                            int residual_shift) {
  const auto layer = build_mtp_program(source.config(), 0);
  if (!layer) return {{}, layer.error().message};
  if (!*layer) return {};
  if (residual_shift != 0) return {{}, "it does not go with a divided residual stream (--residual-shift)"};
  std::vector<WeightDecl> weights;
  std::vector<std::string> missing;
  for (const WeightDecl& w : (*layer)->weights) {
    if (program.weight(w.name) != nullptr) continue;
    if (!is_there(source, source.source_of(w))) missing.push_back(source.source_of(w).names.front());
    weights.push_back(w);
  }
  if (missing.size() == weights.size()) return {{}, "config.json declares it, but the files have no tensor of it"};
  if (!missing.empty())
    return {{},
            fmt::format("{} of its {} tensors are missing, the first is '{}'. Is the download complete?",
                        missing.size(), weights.size(), missing.front())};
  auto fits = check_shared(program, source);
  if (fits) fits = check_all(weights, source, request);
  if (!fits) return {{}, fits.error().message};
  return {std::move(weights), ""};
}

}  // namespace onw
