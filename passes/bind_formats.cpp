#include "passes/bind_formats.h"

namespace onw {

Result<void> bind_formats(Program& program, const FormatOf& format_of) {
  for (WeightDecl& w : program.weights) {
    const auto format = format_of(w.name);
    if (!format)
      return error(Code::missing_tensor, "the model folder has no weight '{}'. Convert the model again.", w.name);
    w.format = *format;
  }
  return {};
}

}  // namespace onw
