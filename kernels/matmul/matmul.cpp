#include "kernels/matmul/matmul.h"

#include <algorithm>
#include <array>
#include <bit>
#include <ranges>

#include "base/cpu_features.h"
#include "base/result.h"
#include "kernels/matmul/kernels.h"
#include "kernels/matmul/prepare.h"
#include "quant/codebook.h"
#include "quant/relayout.h"

namespace onw {
namespace matmul_kernels {
namespace {

constexpr std::array kTable = {
#define KERNEL(function, level, codes, from, to) KernelRow{#function, function, Isa::level, Codes::codes, from, to},
#define AMD_KERNEL(function, level, codes, from, to) \
  KernelRow{#function, function, Isa::level, Codes::codes, from, to, true},
#include "kernels/matmul/kernels.inc"
#undef AMD_KERNEL
#undef KERNEL
};

void set_output(Call& c, const WeightView& weight, BlockRange blocks, const MatmulOutput& out) {
  CHECK(weight.layout == Layout::tiles);
  CHECK(0 <= blocks.first && blocks.first <= blocks.last && blocks.last <= output_blocks(weight));
  const WeightBytes need = weight_bytes(weight.format, weight.layout, weight.outputs, weight.inputs);
  CHECK(static_cast<int64_t>(weight.codes.size()) == need.codes &&
        static_cast<int64_t>(weight.scales.size()) == need.scales &&
        static_cast<int64_t>(weight.minima.size()) == need.minima);
  c.codes = reinterpret_cast<const uint8_t*>(weight.codes.data());
  c.inputs = weight.inputs;
  c.outputs = weight.outputs;
  c.first_block = blocks.first;
  c.last_block = blocks.last;
  c.y = out.y;
  c.y_stride = out.stride;
  c.bias = out.bias;
  c.residual = out.residual;
  c.residual_stride = out.residual_stride;
}

Codes kind_of(const FormatInfo& f) {
  if (f.codebook != Codebook::integer) return Codes::levels;
  if (f.storage_bits == 2) return Codes::twos;
  return f.storage_bits == 8 ? Codes::bytes : Codes::nibbles;
}

}  // namespace

std::span<const KernelRow> kernel_table() { return kTable; }

const KernelRow& select_kernel(Isa isa, Codes codes, int64_t rows) {
  static const bool amd = cpu_features().amd;
  return select_kernel(isa, codes, rows, amd);
}

const KernelRow& select_kernel(Isa isa, Codes codes, int64_t rows, bool amd) {
  for (const KernelRow& row : kTable | std::views::reverse)
    if (runs_at(row.isa, isa) && row.codes == codes && row.rows_from <= rows && rows <= row.rows_to &&
        (amd || !row.for_amd))
      return row;
  CHECK(false && "generic takes everything");
  return kTable.front();
}

Call prepare(const QuantizedRows& x, const WeightView& weight, BlockRange blocks, const MatmulOutput& out) {
  const FormatInfo& f = info(weight.format);
  CHECK(!f.plain() && x.inputs == weight.inputs);
  CHECK(x.group == 32 || x.group == 64 || x.group == 128);
  Call c{};
  set_output(c, weight, blocks, out);
  c.kind = kind_of(f);
  c.rows = x.rows;
  c.row_stride = x.row_stride;
  c.x = x.codes;
  c.x_scales = x.scales;
  c.x_sums = x.sums;
  c.x_shift = std::countr_zero(static_cast<uint32_t>(x.group));
  c.scales = reinterpret_cast<const uint16_t*>(weight.scales.data());
  c.minima = f.minimum ? reinterpret_cast<const uint16_t*>(weight.minima.data()) : nullptr;
  c.weight_groups = weight.groups();
  c.w_shift = f.group == 0 ? 62 : std::countr_zero(static_cast<uint32_t>(f.group));
  c.depth = f.group == 0 ? x.group : std::min(f.group, x.group);
  c.offset = tiles_flip(f);
  c.step = code_values(f).step;
  for (int nibble = 0; nibble < 16; ++nibble) c.values[nibble] = code_values(f).value[nibble ^ (c.offset & 15)];
  return c;
}

Call prepare(const FloatRows& x, const WeightView& weight, BlockRange blocks, const MatmulOutput& out) {
  CHECK(info(weight.format).plain());
  Call c{};
  set_output(c, weight, blocks, out);
  c.kind = weight.format == WeightFormat::f32   ? Codes::f32
           : weight.format == WeightFormat::f16 ? Codes::f16
                                                : Codes::bf16;
  c.rows = x.rows;
  c.x_plain = x.data;
  c.x_plain_stride = x.stride;
  return c;
}

}  // namespace matmul_kernels

void matmul(const QuantizedRows& x, const WeightView& weight, BlockRange blocks, const MatmulOutput& out, Isa isa) {
  if (weight.layout == Layout::rows) return matmul_kernels::matmul_rows(x, weight, blocks, out, isa);
  const matmul_kernels::Call call = matmul_kernels::prepare(x, weight, blocks, out);
  matmul_kernels::select_kernel(isa, call.kind, call.rows).kernel(call);
}

void matmul(const FloatRows& x, const WeightView& weight, BlockRange blocks, const MatmulOutput& out, Isa isa) {
  if (weight.layout == Layout::rows) return matmul_kernels::matmul_rows(x, weight, blocks, out, isa);
  const matmul_kernels::Call call = matmul_kernels::prepare(x, weight, blocks, out);
  matmul_kernels::select_kernel(isa, call.kind, call.rows).kernel(call);
}

}  // namespace onw
