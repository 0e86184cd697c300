// Any bytes as JSON: no exception leaves the parser, and what is accepted can be written and read again.
#include <nlohmann/json.hpp>

#include "graph/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto value = onw::parse_json({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!value) return 0;
  CHECK(onw::parse_json(onw::dump_json(*value), "written").has_value());
  if (value->is_object())
    for (const auto& [key, item] : value->items()) {
      onw::find_int(*value, key);
      onw::find_number(*value, key);
      onw::find_ints(*value, key);
      onw::find_string(*value, key);
    }
  return 0;
}
