#include "targets/reference/tensor.h"

#include <cstdlib>

namespace onw::reference {

int64_t Tensor::elements() const {
  int64_t n = 1;
  for (const int64_t d : type.shape) n *= d;
  return n;
}

Tensor make_tensor(const Type& type, int64_t rows) {
  Tensor t{.type = type};
  for (int64_t& d : t.type.shape)
    if (d == kRows) d = rows;
  if (type.dtype == DType::q8) {
    const size_t bytes = quantized_rows_bytes(rows, type.last(), static_cast<int32_t>(type.group));
    t.memory = std::shared_ptr<std::byte[]>(
        static_cast<std::byte*>(std::aligned_alloc(64, std::max<size_t>(bytes, 64))), std::free);
    t.q = place_quantized_rows(t.memory.get(), rows, type.last(), static_cast<int32_t>(type.group));
  } else {
    t.f.resize(static_cast<size_t>(t.elements()));
  }
  return t;
}

}  // namespace onw::reference
