// Pages of K and V, cut from slabs in huge pages: attention over a long cache reads more memory than the TLB covers in
// small ones (1b at depth 4096: 6.7 ms a step for attention in 4 KB pages, 3.9 in huge ones; Xeon, 2 threads, 2026-11).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"

namespace onw::cpu {

using Page = std::shared_ptr<std::byte>;

// Slabs go back to the system when their last page is given back. Pages may outlive the pool. Pages may be given back
// by any thread; one thread at a time allocates.
class PagePool {
 public:
  // A page of `bytes`, aligned to 64, its content undefined. Errors: out_of_memory.
  Result<Page> allocate(int64_t bytes);

  int64_t slab_bytes_held() const;

 private:
  class Slab;
  std::vector<std::weak_ptr<Slab>> slabs_;
};

// Bytes of a slab for pages of `page_bytes`: a multiple of 2 MiB that they fill to 98 % at least, where 16 MiB or less
// do.
int64_t slab_bytes(int64_t page_bytes);

}  // namespace onw::cpu
