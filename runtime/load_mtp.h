// The layer that predicts one token further, from the same folder as its model.
#pragma once

#include <optional>
#include <string>

#include "runtime/load.h"

namespace onw {

struct OpenedMtp {
  std::optional<Program> program;  // its formats bound
  std::string why_not;             // where there is none although config.json declares one
};
OpenedMtp open_mtp(const OpenedModel& model);

// The model's Program with the weights of the layer beside its own: what is laid out for a device.
Program with_mtp_weights(const OpenedModel& model, const OpenedMtp& mtp);

// `weights` with the short head as a view of the first rows of the head, for the layer alone.
WeightSet mtp_weights(const Program& mtp, const WeightSet& weights);

// Bytes of what model and layer both count.
int64_t shared_weight_bytes(const OpenedModel& model, const Program& mtp, const WeightSet& weights);

}  // namespace onw
