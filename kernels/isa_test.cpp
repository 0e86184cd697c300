#include "kernels/isa.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace onw {
namespace {

const CpuFeatures kLaptop{"a laptop", false, true, true, false, false};
const CpuFeatures kZen4{"a desktop", true, true, false, true, false};
const CpuFeatures kXeon{"a server", false, true, true, true, true};

TEST(Isa, names_round_trip) {
  for (const Isa level : available_isas(kXeon)) EXPECT_EQ(isa(name(level)), level);
  EXPECT_FALSE(isa("avx3"));
}

TEST(Isa, the_best_level_is_the_default) {
  EXPECT_EQ(choose_isa("", kLaptop), Isa::avxvnni);
  EXPECT_EQ(choose_isa("", kZen4), Isa::avx512vnni);
  EXPECT_EQ(choose_isa("", kXeon), Isa::amx);
  EXPECT_EQ(choose_isa("", CpuFeatures{}), Isa::generic);
}

TEST(Isa, a_level_can_be_forced_downwards_only) {
  EXPECT_EQ(choose_isa("avx2", kXeon), Isa::avx2);
  const auto lacking = choose_isa("avx512vnni", kLaptop);
  ASSERT_FALSE(lacking);
  EXPECT_EQ(lacking.error().code, Code::usage);
  EXPECT_THAT(lacking.error().message, testing::HasSubstr("runs generic, avx2, avxvnni"));
  EXPECT_THAT(choose_isa("avx9", kXeon).error().message, testing::HasSubstr("no such instruction set"));
}

TEST(Isa, kernels_run_where_their_instructions_are) {
  EXPECT_TRUE(runs_at(Isa::avx2, Isa::amx));
  EXPECT_TRUE(runs_at(Isa::avx512vnni, Isa::amx));
  EXPECT_TRUE(runs_at(Isa::avxvnni, Isa::avxvnni));
  EXPECT_FALSE(runs_at(Isa::avxvnni, Isa::avx512vnni));
  EXPECT_FALSE(runs_at(Isa::avx2, Isa::generic));
}

TEST(Isa, a_level_never_lacks_those_its_kernels_fall_back_to) {
  const CpuFeatures& here = cpu_features();
  EXPECT_LE(here.avx_vnni, here.avx2);
  EXPECT_LE(here.avx512_vnni, here.avx2);
  EXPECT_LE(here.amx_int8, here.avx512_vnni);
  EXPECT_FALSE(here.model.empty());
}

}  // namespace
}  // namespace onw
