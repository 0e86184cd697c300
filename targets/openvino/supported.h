// What of models OpenVINO's devices cannot compute yet, known before anything is made.
#pragma once

#include <string_view>

#include "base/result.h"
#include "graph/program.h"

namespace onw::openvino {

// Errors: unsupported, naming what runs on the CPU alone, and how.
Result<void> check_supported(const Program& program, std::string_view device);

}  // namespace onw::openvino
