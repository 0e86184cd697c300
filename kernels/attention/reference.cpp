#include "kernels/attention/reference.h"

#include <algorithm>
#include <vector>

#include "base/half.h"
#include "kernels/attention/scalar_block.h"

namespace onw::scalar {
namespace {

struct Plain {
  const AttentionForm& form;
  const PlainKv& kv;

  int64_t at(int64_t p, int i) const { return (p - kv.first) * form.head_dim + i; }
  float element(const void* from, int64_t i) const {
    return form.kv == KvFormat::f16 ? half_to_float(static_cast<const uint16_t*>(from)[i])
                                    : static_cast<const float*>(from)[i];
  }
  int k_code(int64_t p, int i) const { return static_cast<const int8_t*>(kv.k)[at(p, i)]; }
  int v_code(int64_t p, int i) const { return static_cast<const int8_t*>(kv.v)[at(p, i)]; }
  uint16_t k_scale(int64_t p) const { return kv.k_scale[p - kv.first]; }
  uint16_t v_scale(int64_t p) const { return kv.v_scale[p - kv.first]; }
  float k(int64_t p, int i) const { return element(kv.k, at(p, i)); }
  float v(int64_t p, int i) const { return element(kv.v, at(p, i)); }
};

}  // namespace

void attention(const AttentionForm& form, const AttentionRow& row, const PlainKv& kv) {
  std::vector<int8_t> codes(form.head_dim);
  std::vector<float> o(form.head_dim), block_o(form.head_dim);
  const Query query = make_query(form, row.q, codes.data());
  SoftmaxState running{.o = o.data()}, block{.o = block_o.data()};
  for (int64_t begin = row.begin; begin < row.end;) {
    const int64_t end = std::min((begin / kPagePositions + 1) * kPagePositions, row.end);
    attend_block(form, query, Plain{form, kv}, begin, end, block);
    fold_block({block.m, block.l, block.o}, form.head_dim, running);
    begin = end;
  }
  finish_row(row, form.head_dim, running, row.out);
}

}  // namespace onw::scalar
