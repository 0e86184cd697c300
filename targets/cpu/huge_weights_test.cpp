#include "targets/cpu/huge_weights.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "base/huge_memory.h"
#include "base/mapped_file.h"
#include "base/temp_folder.h"

namespace onw::cpu {
namespace {

constexpr int64_t kHuge = static_cast<int64_t>(kHugePageBytes);

// Two plain weights of a file, one after the other, and a table that only the host looks up.
struct Model {
  Model() {
    opened =
        std::make_shared<MappedFile>(MappedFile::open(folder.write("weights", std::string(21 * kHuge, 'w'))).value());
    add("table", WeightRole::embedding, 4 * kHuge);
    add("one", WeightRole::matrix, 3 * kHuge + 4096);
    add("two", WeightRole::head, 3 * kHuge);
  }

  void add(const std::string& name, WeightRole role, int64_t bytes) {
    program.weights.push_back({.name = name, .role = role});
    views[name].codes = opened->bytes().subspan(static_cast<size_t>(used), static_cast<size_t>(bytes));
    used += bytes;
  }

  void add_experts(const std::string& name, int64_t count, int64_t bytes) {
    add(name, WeightRole::expert, bytes);
    views[name].experts = count;
    views[name].expert_stride = bytes;
    used += (count - 1) * bytes;
  }

  WeightSet weights(bool mapped = true) const {
    const auto find = [this](std::string_view name) -> Result<WeightView> { return views.at(std::string(name)); };
    return {find, opened,
            mapped ? std::vector<MappedWeights>{{opened->path(), opened->bytes()}} : std::vector<MappedWeights>{}};
  }

  TempFolder folder;
  std::shared_ptr<MappedFile> opened;
  Program program;
  std::map<std::string, WeightView> views;
  int64_t used = 0;
};

int64_t total(const std::vector<HugePart>& parts) {
  int64_t bytes = 0;
  for (const HugePart& part : parts) bytes += static_cast<int64_t>(part.bytes.size());
  return bytes;
}

TEST(HugeWeights, are_whole_huge_pages_that_hold_what_every_step_reads) {
  const Model m;
  const auto parts = parts_for_huge_pages(m.program, m.weights(), 4 * kHugePageBytes);
  EXPECT_GE(total(parts), 6 * kHuge);
  EXPECT_LE(total(parts), 8 * kHuge);
  const std::byte* end = m.views.at("table").codes.data() + 3 * kHuge;  // at most its last page, which two share
  for (const HugePart& part : parts) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(part.bytes.data()) % kHugePageBytes, 0);
    EXPECT_EQ(part.bytes.size() % kHugePageBytes, 0);
    EXPECT_LE(part.bytes.size(), 4 * kHugePageBytes);
    EXPECT_GE(part.bytes.data(), end) << "parts overlap, or the table is one";
    end = part.bytes.data() + part.bytes.size();
  }
}

TEST(HugeWeights, are_none_where_weights_are_not_mapped) {
  const Model m;
  EXPECT_TRUE(parts_for_huge_pages(m.program, m.weights(false), kHugePageBytes).empty());
}

TEST(HugeWeights, experts_are_apart_and_whole) {
  Model m;
  m.add_experts("stack", 3, 3 * kHuge);
  const auto dense = parts_for_huge_pages(m.program, m.weights(), 4 * kHugePageBytes);
  const auto experts = expert_parts(m.program, m.weights(), 4 * kHugePageBytes);
  EXPECT_GE(total(experts), 8 * kHuge) << "of 9, less the ends";
  EXPECT_LE(total(experts), 10 * kHuge);
  EXPECT_LE(dense.back().bytes.data() + dense.back().bytes.size(), m.views.at("stack").codes.data() + kHuge);
  HugeWeights touching({}, experts);
  while (touching.moving()) std::this_thread::yield();
  for (const std::byte b : m.opened->bytes()) ASSERT_EQ(b, std::byte{'w'});
}

TEST(HugeWeights, a_move_that_is_stopped_at_once_leaves_every_byte) {
  const Model m;
  for (int round = 0; round < 20; ++round)
    HugeWeights moving(parts_for_huge_pages(m.program, m.weights(), kHugePageBytes), {});
  for (const std::byte b : m.opened->bytes()) ASSERT_EQ(b, std::byte{'w'});
}

}  // namespace
}  // namespace onw::cpu
