#include "targets/cpu/page_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

namespace onw::cpu {
namespace {

constexpr int64_t kHuge = 2 << 20;

TEST(PagePool, wastes_little_of_its_slabs) {
  for (const int64_t bytes : {64, 4096, 33792, 270336, 540672, 2 << 20, (2 << 20) + 64, 5 << 20, 40 << 20}) {
    const int64_t slab = slab_bytes(bytes);
    EXPECT_EQ(slab % kHuge, 0);
    EXPECT_GE(slab, bytes);
    EXPECT_LE(slab % bytes, slab / 10) << bytes;
  }
  EXPECT_EQ(slab_bytes(270336), 3 * kHuge);
}

TEST(PagePool, gives_pages_that_do_not_overlap_and_takes_them_again) {
  PagePool pool;
  std::vector<Page> pages;
  for (int i = 0; i < 40; ++i) {
    auto page = pool.allocate(270336);
    ASSERT_TRUE(page.has_value());
    std::memset(page->get(), i, 270336);
    pages.push_back(std::move(*page));
  }
  for (int i = 0; i < 40; ++i) EXPECT_EQ(static_cast<int>(pages[i].get()[270335]), i);
  EXPECT_EQ(pool.slab_bytes_held(), 2 * slab_bytes(270336));
  std::byte* const place = pages[7].get();
  pages[7].reset();
  EXPECT_EQ((*pool.allocate(270336)).get(), place);
}

TEST(PagePool, gives_a_slab_back_with_its_last_page) {
  PagePool pool;
  std::vector<Page> pages;
  for (int i = 0; i < 3; ++i) pages.push_back(*pool.allocate(1 << 20));
  EXPECT_EQ(pool.slab_bytes_held(), 2 * kHuge);
  pages.pop_back();
  EXPECT_EQ(pool.slab_bytes_held(), kHuge);
  pages.clear();
  EXPECT_EQ(pool.slab_bytes_held(), 0);
}

TEST(PagePool, keeps_sizes_apart_and_its_pages_alive) {
  Page small, large;
  {
    PagePool pool;
    small = *pool.allocate(100);
    large = *pool.allocate(1000);
    EXPECT_EQ(pool.slab_bytes_held(), 2 * kHuge);
  }
  std::memset(small.get(), 1, 100);
  std::memset(large.get(), 2, 1000);
  EXPECT_EQ(static_cast<int>(small.get()[99]), 1);
}

}  // namespace
}  // namespace onw::cpu
