// Any bytes as config.json, and as the metadata of a GGUF file: every family answers with a Program or an error.
#include <nlohmann/json.hpp>

#include "graph/json.h"
#include "models/config.h"
#include "models/registry.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto config = onw::parse_json({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!config) return 0;
  (void)onw::build_program(*config);
  for (const onw::Family& family : onw::all_families()) {
    (void)family.build(onw::Config(*config));
    if (family.config_from_gguf == nullptr) continue;
    if (const auto made = family.config_from_gguf(*config)) (void)family.build(onw::Config(*made));
  }
  return 0;
}
