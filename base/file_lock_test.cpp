#include "base/file_lock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/temp_folder.h"

namespace onw {
namespace {

TEST(FileLock, a_file_that_was_unlinked_while_somebody_waited_is_not_held_by_two) {
  const TempFolder folder;
  const auto path = folder / "x.lock";
  std::atomic<int> inside = 0, most = 0;
  const auto work = [&] {
    for (int i = 0; i < 200; ++i) {
      const auto lock = FileLock::acquire(path);
      ASSERT_TRUE(lock && lock->held());
      most = std::max(most.load(), ++inside);
      std::this_thread::yield();
      --inside;
      std::filesystem::remove(path);  // as a writer does that has finished
    }
  };
  {
    std::jthread a(work), b(work), c(work);
  }
  EXPECT_EQ(most, 1);
}

}  // namespace
}  // namespace onw
