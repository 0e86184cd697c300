#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "base/guarded_memory.h"
#include "kernels/matmul/data_test.h"
#include "kernels/matmul/matmul.h"
#include "quant/relayout.h"
#include "quant/unpack.h"

namespace onw {
namespace {

using test::Data;
using test::Shape;
using test::TestFloatRows;
using test::TestRows;
using test::TestWeight;

// The same weight in the layout `rows`, each part ending at a guard page.
class RowsWeight {
 public:
  RowsWeight(const WeightView& tiles, const WeightBytes& bytes)
      : tiles_(tiles), codes_(bytes.codes), scales_(bytes.scales), minima_(bytes.minima) {
    relayout(tiles, 0, output_blocks(tiles), {codes_.bytes(), scales_.bytes(), minima_.bytes()});
  }
  WeightView view() const {
    return {tiles_.format,  Layout::rows,    tiles_.outputs, tiles_.inputs,
            codes_.bytes(), scales_.bytes(), minima_.bytes()};
  }

 private:
  WeightView tiles_;
  GuardedMemory codes_, scales_, minima_;
};

// The first place where the level's result for layout `rows` is not the reference's, block ranges cut at an odd place.
std::string compare(Isa isa, WeightFormat format, const Shape& shape, Data data) {
  const TestWeight tiles(format, shape, data, 3);
  const RowsWeight weight(tiles.view(), weight_bytes(format, Layout::rows, shape.outputs, shape.inputs));
  const int64_t blocks = (shape.outputs + 15) / 16, cut = blocks > 1 ? 1 : 0;
  std::vector<float> wanted(shape.rows * shape.outputs, 7.0f), got = wanted, bias(shape.outputs, 0.5f);
  const auto run = [&](const auto& x) {
    matmul_reference(x, weight.view(), {0, blocks}, {wanted.data(), shape.outputs, bias.data()});
    matmul(x, weight.view(), {0, cut}, {got.data(), shape.outputs, bias.data()}, isa);
    matmul(x, weight.view(), {cut, blocks}, {got.data(), shape.outputs, bias.data()}, isa);
  };
  if (info(format).plain()) {
    run(TestFloatRows(shape, 5).rows());
  } else {
    const TestRows rows(shape, data, 5);
    run(rows.rows());
  }
  for (size_t i = 0; i < wanted.size(); ++i)
    if (std::bit_cast<uint32_t>(wanted[i]) != std::bit_cast<uint32_t>(got[i]) &&
        !(std::isnan(wanted[i]) && std::isnan(got[i])))
      return fmt::format("{} {} [{}, {}] x {} rows, {}: at {} wanted {:a}, got {:a}", name(isa), name(format),
                         shape.outputs, shape.inputs, shape.rows, test::name(data), i, wanted[i], got[i]);
  return "";
}

TEST(MatmulOfRows, equals_the_reference_at_every_level_in_every_format) {
  for (const Isa isa : available_isas(cpu_features()))
    for (const FormatInfo& f : all_formats()) {
      for (const int64_t rows : {1, 2, 5, 16, 33})
        EXPECT_EQ(compare(isa, f.format, {53, 256, rows, 64}, Data::random), "");
      for (const Data data : {Data::saturating, Data::lowest, Data::tiny, Data::huge})
        EXPECT_EQ(compare(isa, f.format, {37, 128, 3, 32}, data), "");
    }
}

TEST(MatmulOfRows, equals_the_reference_for_odd_shapes) {
  for (const Isa isa : available_isas(cpu_features()))
    for (const FormatInfo& f : all_formats()) {
      for (const int64_t outputs : {1, 16, 17, 80})
        EXPECT_EQ(compare(isa, f.format, {outputs, 640, 2, 128}, Data::random), "");
      if (f.group <= 32) EXPECT_EQ(compare(isa, f.format, {33, f.plain() ? 77 : 96, 7, 32}, Data::random), "");
    }
}

}  // namespace
}  // namespace onw
