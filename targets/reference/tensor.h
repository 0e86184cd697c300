// Values of the interpreter: plain arrays, one element after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "graph/type.h"
#include "kernels/rows.h"

namespace onw::reference {

struct Tensor {
  Type type;  // with the row count filled in where it is symbolic
  std::vector<float>
      f;  // f32, f16 and bool values (f16 rounded to it, bool 0 or 1); i8, i4 and i32 too, exact below 2^24
  std::shared_ptr<std::byte[]> memory;  // of q8
  QuantizedRows q;

  int64_t rows() const { return type.shape.empty() ? 1 : type.shape[0]; }
  int64_t elements() const;
  // Row r of a value whose first dimension is rows.
  std::span<float> row(int64_t r) {
    return std::span(f).subspan(static_cast<size_t>(r * type.row_elements()), static_cast<size_t>(type.row_elements()));
  }
  std::span<const float> row(int64_t r) const { return const_cast<Tensor*>(this)->row(r); }
};

// `type` with `rows` for S, all zero; a q8 value gets memory for its codes.
Tensor make_tensor(const Type& type, int64_t rows);

}  // namespace onw::reference
