#include "graph/weight_format.h"

#include <gtest/gtest.h>

namespace onw {
namespace {

TEST(WeightFormat, the_table_is_indexed_by_the_enum_and_names_are_unique) {
  for (const FormatInfo& f : all_formats()) {
    EXPECT_EQ(info(f.format).name, f.name);
    EXPECT_EQ(weight_format(f.name), f.format);
  }
  EXPECT_FALSE(weight_format("q4"));
}

TEST(WeightFormat, the_group_follows_from_the_width) {
  EXPECT_EQ(fit(WeightFormat::q4g128, 4096), WeightFormat::q4g128);
  EXPECT_EQ(fit(WeightFormat::q4g128, 576), WeightFormat::q4g64);
  EXPECT_EQ(fit(WeightFormat::q4sg128, 96), WeightFormat::q4sg32);
  EXPECT_EQ(fit(WeightFormat::q8g128, 320), WeightFormat::q8g64);
  EXPECT_EQ(fit(WeightFormat::q4g128, 48), WeightFormat::f16);
  EXPECT_EQ(fit(WeightFormat::q8c, 320), WeightFormat::q8c);
  EXPECT_EQ(fit(WeightFormat::q8c, 48), WeightFormat::f16);
  EXPECT_EQ(fit(WeightFormat::u2g128, 384), WeightFormat::u2g128);
  EXPECT_EQ(fit(WeightFormat::u2g128, 320), WeightFormat::q4g64);
  EXPECT_EQ(fit(WeightFormat::u2g128, 96), WeightFormat::q4g32);
  EXPECT_EQ(fit(WeightFormat::u2g128, 48), WeightFormat::f16);
  EXPECT_EQ(fit(WeightFormat::f32, 48), WeightFormat::f32);
}

}  // namespace
}  // namespace onw
