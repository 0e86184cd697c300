#include "kernels/roof/roof.h"

#include <gtest/gtest.h>

#include <vector>

namespace onw {
namespace {

TEST(Roof, reading_depends_on_the_bytes_at_every_level) {
  std::vector<std::byte> memory(4096);
  memory[256] = std::byte{5};
  for (const Isa isa : available_isas(cpu_features())) EXPECT_EQ(roof_read(memory, isa), 5u) << name(isa);
}

TEST(Roof, every_level_counts_its_operations) {
  for (const Isa isa : available_isas(cpu_features())) {
    EXPECT_GT(roof_dot(10, isa), 0) << name(isa);
    EXPECT_EQ(roof_dot(20, isa), 2 * roof_dot(10, isa)) << name(isa);
  }
}

}  // namespace
}  // namespace onw
