// What becomes of graphs with attention inside, which are made beside the answers (fused_variants.h).
#pragma once

#include <cstdint>
#include <string>

namespace onw {

struct FusedNews {
  int64_t rows = 0, length = 0;                                              // positions that it covers
  enum class What { compiled, loaded, failed, done } what = What::compiled;  // done: nothing is left to compile for now
  std::string why = {};                                                      // it failed
};

}  // namespace onw
