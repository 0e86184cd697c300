#include "targets/recurrent_state.h"

#include <cstring>

#include "targets/canonical_state.h"

namespace onw {

RecurrentForm recurrent_form(const StateDecl& s) {
  if (s.kind == StateKind::conv) return {(s.kernel - 1) * s.heads, s.heads};
  return {s.heads * s.head_dim * s.value_dim, delta_c_at(s) + s.heads};
}

Result<void> check_recurrent(const StateDecl& s) {
  const bool good = s.kind == StateKind::conv ? s.heads > 0 && s.kernel > 0 && s.kernel <= 64
                                              : s.heads > 0 && s.key_heads > 0 && s.heads % s.key_heads == 0 &&
                                                    s.head_dim > 0 && s.value_dim > 0;
  if (!good)
    return error(Code::invalid_argument,
                 "state '{}' is declared with {} heads, {} key heads, sizes {} and {}, kernel {}", s.name, s.heads,
                 s.key_heads, s.head_dim, s.value_dim, s.kernel);
  return {};
}

Result<void> export_recurrent(const StateDecl& s, const float* edge, const float* log, int64_t rows, StateSink& sink) {
  const RecurrentForm form = recurrent_form(s);
  const auto bytes = [](const float* from, int64_t n) {
    return std::as_bytes(std::span(from, static_cast<size_t>(n)));
  };
  RETURN_IF_ERROR(sink.put(state_blob_name(s, "edge", 0), bytes(edge, form.edge_floats)));
  return sink.put(state_blob_name(s, "log", 0), bytes(log, rows * form.row_floats));
}

Result<void> import_recurrent(const StateDecl& s, StateSource& source, float* edge, float* log) {
  const RecurrentForm form = recurrent_form(s);
  const int64_t rows = source.length() - chunk_begin(source.length());
  const auto read = [&](std::string_view part, int64_t floats, float* to) -> Result<void> {
    const std::string name = state_blob_name(s, part, 0);
    const auto blob = source.get(name);
    RETURN_IF_ERROR(blob);
    const auto bytes = static_cast<size_t>(floats) * sizeof(float);
    if (blob->size() != bytes)
      return error(Code::bad_format, "saved state: '{}' has {} bytes, {} expected", name, blob->size(), bytes);
    if (bytes > 0) std::memcpy(to, blob->data(), bytes);
    return {};
  };
  RETURN_IF_ERROR(read("edge", form.edge_floats, edge));
  return read("log", rows * form.row_floats, log);
}

}  // namespace onw
