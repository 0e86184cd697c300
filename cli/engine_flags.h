// The flags that say what computes, read once for every command that has them.
#pragma once

#include "base/result.h"
#include "cli/flags.h"
#include "runtime/engine.h"
#include "runtime/load.h"

namespace onw::cli {

EngineOptions engine_options(const Args& args);
LoadOptions load_options(const Args& args);
std::optional<KvFormat> kv_format(const Args& args);
std::optional<bool> fused(const Args& args);  // none: auto
// What to say of --fused where the device has nothing of it; empty where it counts, or was not given.
std::string fused_remark(const Args& args, std::string_view device);

// What computes and how long a conversation may be: "CPU (amx, 2 threads): this machine shows no NPU,
// context of 8192 tokens (the model's)".
std::string describe(const EngineSetup& engine);

}  // namespace onw::cli
