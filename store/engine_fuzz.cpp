// Any bytes as engine.json: what is accepted has sizes that can be computed with, and is written as it was read.
#include <nlohmann/json.hpp>

#include "graph/json.h"
#include "store/engine_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto root = onw::parse_json({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!root) return 0;
  const auto engine = onw::parse_engine(*root, "fuzz");
  if (!engine) return 0;
  for (const onw::StoredWeight& w : engine->weights) {
    CHECK(w.bytes().total() > 0);
    onw::codes_form(w);
    onw::scales_form(w);
  }
  const auto again = onw::parse_engine(onw::to_json(*engine), "written");
  CHECK(again && again->weights == engine->weights && again->stop_ids == engine->stop_ids);
  return 0;
}
