#include "kernels/matmul/matmul.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "kernels/matmul/data_test.h"
#include "kernels/matmul/kernels.h"
#include "kernels/matmul/prepare.h"
#include "quant/quantise.h"
#include "quant/relayout.h"
#include "quant/unpack.h"

namespace onw {
namespace {

using matmul_kernels::KernelRow;
using test::Data;
using test::Shape;
using test::TestFloatRows;
using test::TestRows;
using test::TestWeight;

// A result with bias and residual in guarded memory; columns beyond the outputs hold a mark.
struct Result {
  static constexpr float kMark = 12345.0f;
  Shape shape;
  int64_t stride;
  GuardedMemory y, bias, residual;

  explicit Result(const Shape& s)
      : shape(s), stride(s.outputs + 5), y(s.rows * stride * 4), bias(s.outputs * 4), residual(s.rows * s.outputs * 4) {
    std::ranges::fill(y.as<float>(), kMark);
    std::mt19937 random(9);
    for (float& b : bias.as<float>()) b = std::uniform_real_distribution<float>(-1, 1)(random);
    for (float& r : residual.as<float>()) r = std::uniform_real_distribution<float>(-1, 1)(random);
  }
  MatmulOutput plain() { return {y.as<float>().data(), stride}; }
  MatmulOutput with_epilogue() {
    return {y.as<float>().data(), stride, bias.as<float>().data(), residual.as<float>().data(), shape.outputs};
  }
};

std::string difference(const Result& wanted, const Result& got) {
  for (int64_t i = 0; i < wanted.shape.rows * wanted.stride; ++i) {
    const float a = wanted.y.as<float>()[i], b = got.y.as<float>()[i];
    if (std::bit_cast<uint32_t>(a) != std::bit_cast<uint32_t>(b) && !(std::isnan(a) && std::isnan(b)))
      return fmt::format("row {}, output {}: wanted {:a}, got {:a}", i / wanted.stride, i % wanted.stride, a, b);
  }
  return "";
}

bool takes(const KernelRow& kernel, WeightFormat format) {
  const FormatInfo& f = info(format);
  const GuardedMemory nothing(64);
  const Shape shape{16, 128, 1, 32};
  const TestWeight w(format, shape, Data::random, 1);
  const auto kind = f.plain() ? matmul_kernels::prepare(FloatRows{nullptr, 1, 128}, w.view(), {}, {}).kind
                              : matmul_kernels::prepare(TestRows(shape, Data::random, 1).rows(), w.view(), {}, {}).kind;
  return kind == kernel.codes;
}

// Runs one kernel against the reference. The block range is split in two, at an odd place.
std::string compare(const KernelRow& kernel, WeightFormat format, const Shape& shape, Data data) {
  if (shape.rows < kernel.rows_from || shape.rows > kernel.rows_to) return "";
  const TestWeight w(format, shape, data, static_cast<uint32_t>(shape.outputs * 7 + shape.rows));
  Result wanted(shape), got(shape);
  const int64_t blocks = output_blocks(w.view());
  const int64_t cut = blocks > 2 ? 1 : 0;
  const auto run = [&](const auto& x) {
    matmul_reference(x, w.view(), {0, blocks}, wanted.with_epilogue());
    kernel.kernel(matmul_kernels::prepare(x, w.view(), {0, cut}, got.with_epilogue()));
    kernel.kernel(matmul_kernels::prepare(x, w.view(), {cut, blocks}, got.with_epilogue()));
  };
  if (info(format).plain()) {
    run(TestFloatRows(shape, 3).rows());
  } else {
    const TestRows rows(shape, data, 3);
    run(rows.rows());
  }
  const std::string d = difference(wanted, got);
  if (d.empty()) return d;
  return fmt::format("{} {} [{}, {}] x {} rows, activation group {}, {}: {}", kernel.name, name(format), shape.outputs,
                     shape.inputs, shape.rows, shape.x_group, test::name(data), d);
}

class EveryKernel : public testing::TestWithParam<KernelRow> {
 protected:
  void SetUp() override {
    const auto levels = available_isas(cpu_features());
    if (std::ranges::find(levels, GetParam().isa) == levels.end())
      GTEST_SKIP() << GetParam().name << ": this CPU has no " << name(GetParam().isa);
  }
};
INSTANTIATE_TEST_SUITE_P(Matmul, EveryKernel, testing::ValuesIn(matmul_kernels::kernel_table()), [](const auto& p) {
  return fmt::format("{}_{}_{}", p.param.name, static_cast<int>(p.param.codes), name(p.param.isa));
});

TEST_P(EveryKernel, equals_the_reference_on_adversarial_data) {
  for (const FormatInfo& f : all_formats()) {
    if (!takes(GetParam(), f.format)) continue;
    for (const int32_t x_group : {32, 64, 128})
      for (const Data data : test::kAllData) {
        EXPECT_EQ(compare(GetParam(), f.format, {37, 384, std::min<int64_t>(GetParam().rows_to, 5), x_group}, data),
                  "");
        EXPECT_EQ(compare(GetParam(), f.format, {64, 256, 1, x_group}, data), "");
        EXPECT_EQ(compare(GetParam(), f.format, {48, 256, 33, x_group}, data), "");
      }
  }
}

// numerics-060
TEST_P(EveryKernel, equals_the_reference_for_every_number_of_rows) {
  int64_t step = 1;
  for (const FormatInfo& f : all_formats()) {
    if (!takes(GetParam(), f.format)) continue;
    for (int64_t rows = 1; rows <= 70; rows += step)
      EXPECT_EQ(compare(GetParam(), f.format, {35, 256, rows, 64}, Data::random), "");
    if (step == 1) EXPECT_EQ(compare(GetParam(), f.format, {32, 128, 300, 128}, Data::random), "");
    step = 13;  // every number once, a few for the other formats of the kernel
  }
}

// numerics-060
TEST_P(EveryKernel, equals_the_reference_for_odd_shapes) {
  for (const FormatInfo& f : all_formats()) {
    if (!takes(GetParam(), f.format)) continue;
    for (const int64_t outputs : {1, 16, 17, 31, 32, 49, 80})
      for (const int64_t rows : {1, 2, 7, 16, 19})
        EXPECT_EQ(compare(GetParam(), f.format, {outputs, 640, rows, 128}, Data::random), "");
    if (f.group <= 32) EXPECT_EQ(compare(GetParam(), f.format, {33, f.plain() ? 77 : 96, 7, 32}, Data::random), "");
  }
}

TEST_P(EveryKernel, leaves_the_rest_of_the_output_alone_and_may_add_in_place) {
  for (const FormatInfo& f : all_formats()) {
    if (f.plain() || !takes(GetParam(), f.format)) continue;
    const Shape shape{21, 128, std::min<int64_t>(GetParam().rows_to, 11), 32};
    const TestWeight w(f.format, shape, Data::random, 4);
    const TestRows x(shape, Data::random, 5);
    Result wanted(shape), got(shape);
    for (int64_t r = 0; r < shape.rows; ++r)
      std::ranges::fill(wanted.residual.as<float>().subspan(r * shape.outputs, shape.outputs), Result::kMark);
    matmul_reference(x.rows(), w.view(), {0, 2}, wanted.with_epilogue());
    MatmulOutput in_place = got.with_epilogue();
    in_place.residual = in_place.y;
    in_place.residual_stride = in_place.stride;
    GetParam().kernel(matmul_kernels::prepare(x.rows(), w.view(), {0, 2}, in_place));
    EXPECT_EQ(difference(wanted, got), "") << f.name;
    for (int64_t r = 0; r < shape.rows; ++r)
      for (int64_t o = shape.outputs; o < got.stride; ++o)
        EXPECT_EQ(got.y.as<float>()[r * got.stride + o], Result::kMark);
  }
}

TEST(Matmul, is_what_the_formula_says_in_double) {
  const Shape shape{16, 256, 2, 64};
  for (const WeightFormat format :
       {WeightFormat::q4g128, WeightFormat::q5g32m, WeightFormat::u2g128, WeightFormat::nf4c, WeightFormat::f16}) {
    const TestWeight w(format, shape, Data::random, 4);
    const TestRows x(shape, Data::random, 5);
    const TestFloatRows xf(shape, 6);
    Result got(shape);
    if (info(format).plain()) {
      matmul(xf.rows(), w.view(), {0, 1}, got.plain(), Isa::generic);
    } else {
      matmul(x.rows(), w.view(), {0, 1}, got.plain(), Isa::generic);
    }
    std::vector<float> row(256);
    for (int64_t o = 0; o < 16; ++o) {
      dequantise_row(w.view(), o, row);
      for (int64_t r = 0; r < 2; ++r) {
        double wanted = 0, size = 0;
        for (int64_t k = 0; k < 256; ++k) {
          const QuantizedRows& q = x.rows();
          const int64_t at = k / 64 * q.row_stride + r;
          const double a = info(format).plain() ? xf.rows().data[r * xf.rows().stride + k]
                                                : static_cast<double>(q.codes[at * 64 + k % 64]) * q.scales[at];
          wanted += a * row[k];
          size += std::fabs(a * row[k]);
        }
        EXPECT_NEAR(got.y.as<float>()[r * got.stride + o], wanted, size * 1e-6);
      }
    }
  }
}

TEST(Matmul, reference_reads_rows_as_it_reads_tiles) {
  const Shape shape{37, 256, 3, 128};
  for (const FormatInfo& f : all_formats()) {
    const TestWeight tiles(f.format, shape, Data::random, 4);
    const WeightBytes bytes = weight_bytes(f.format, Layout::rows, 37, 256);
    std::vector<std::byte> codes(bytes.codes), scales(bytes.scales), minima(bytes.minima);
    relayout(tiles.view(), 0, 3, {codes, scales, minima});
    const WeightView rows{f.format, Layout::rows, 37, 256, codes, scales, minima};
    Result a(shape), b(shape);
    const auto run = [&](const auto& x) {
      matmul_reference(x, tiles.view(), {0, 3}, a.with_epilogue());
      matmul_reference(x, rows, {0, 3}, b.with_epilogue());
    };
    if (f.plain()) {
      run(TestFloatRows(shape, 3).rows());
    } else {
      run(TestRows(shape, Data::random, 3).rows());
    }
    EXPECT_EQ(difference(a, b), "") << f.name;
  }
}

TEST(Matmul, every_level_selects_kernels_it_can_run) {
  using matmul_kernels::Codes;
  for (const Isa level : {Isa::generic, Isa::avx2, Isa::avxvnni, Isa::avx512vnni, Isa::amx})
    for (const Codes codes :
         {Codes::nibbles, Codes::levels, Codes::bytes, Codes::twos, Codes::f32, Codes::f16, Codes::bf16})
      for (const int64_t rows : {1, 2, 8, 512}) {
        for (const bool amd : {false, true}) {
          const KernelRow& row = matmul_kernels::select_kernel(level, codes, rows, amd);
          EXPECT_TRUE(runs_at(row.isa, level));
          EXPECT_EQ(row.codes, codes);
          EXPECT_LE(row.rows_from, rows);
          EXPECT_LE(rows, row.rows_to);
          EXPECT_LE(row.for_amd, amd);
        }
      }
  EXPECT_TRUE(matmul_kernels::select_kernel(Isa::avx512vnni, Codes::nibbles, 1, true).for_amd);
}

}  // namespace
}  // namespace onw
