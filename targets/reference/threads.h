// The reference's only concession to speed: independent rows or outputs on a few threads. No sum is ever split.
#pragma once

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

namespace onw::reference {

// Calls f(first, last) over parts of [0, n), one thread each.
template <class F>
void split(int64_t n, int threads, F f) {
  const int64_t parts = std::clamp<int64_t>(threads, 1, std::max<int64_t>(n, 1));
  std::vector<std::jthread> pool;
  for (int64_t i = 1; i < parts; ++i) pool.emplace_back([=, &f] { f(n * i / parts, n * (i + 1) / parts); });
  f(0, n / parts);
}

}  // namespace onw::reference
