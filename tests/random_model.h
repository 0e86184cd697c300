// Models with random weights in memory: any config, any format, no files. For tests of targets against each other.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>

#include "graph/program.h"
#include "targets/weights.h"

namespace onw::testing {

struct RandomModel {
  Program program;    // formats bound
  WeightSet weights;  // in rows
};

// The format of a weight by its declaration, before the group is fitted to its width; vectors are F32 whatever this
// says.
using FormatChoice = std::function<WeightFormat(const WeightDecl&)>;

// Values N(0, 1/sqrt(inputs)), norms around 1, from the seed and each weight's name.
RandomModel random_model(const nlohmann::json& config, const FormatChoice& format, uint32_t seed = 1);

// config.json of a family ("llama", "qwen2", "qwen3", "qwen3_moe", "gpt_oss", "granite", "granitemoehybrid",
// "gemma3", "lfm2", "lfm2_moe", "qwen3_5", "qwen3_5_moe") with groups of 64
// (hidden 320) or 128 (hidden 512); the width 48 takes no group.
nlohmann::json tiny_config(std::string_view family, int64_t hidden);

}  // namespace onw::testing
