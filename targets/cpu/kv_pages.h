// K and V of one state of one sequence: pages of 256 positions, counted by reference, copied when a shared one is
// written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "graph/program.h"
#include "kernels/attention/kv_page.h"
#include "targets/cpu/page_pool.h"

namespace onw::cpu {

// A Page holds all heads of one state for 256 positions: heads x layout.bytes().

// Bytes of one page of a state.
int64_t page_bytes(const StateDecl& state, KvFormat format);

class KvPages {
 public:
  KvPages(const StateDecl& state, KvFormat format, std::shared_ptr<PagePool> pool);
  KvPages(KvPages&&) = default;
  KvPages& operator=(KvPages&&) = default;

  // The same positions, the pages shared; what was reserved stays here.
  KvPages share() const;

  // Makes the positions [begin, end) writable: new pages where there are none, copies where a page is shared. Errors:
  // out_of_memory.
  Result<void> prepare(int64_t begin, int64_t end);
  // Makes room for `tokens` in all without writing. A window needs no more than its ring.
  Result<void> reserve(int64_t tokens);
  // Gives back what lies wholly before `position` (a window has moved on).
  void drop_before(int64_t position);
  // Gives back what lies wholly at or behind `position`.
  void drop_from(int64_t position);

  // The first position that is still kept; 0 where nothing was dropped.
  int64_t first_kept() const { return first_kept_; }
  // Begins at `position` instead of 0, with no page before: an imported window.
  void begin_at(int64_t position);
  // For AttentionTask: block b of one head; null where there is none.
  const std::byte* const* blocks(int64_t head) const { return pointers_.data() + head * block_capacity_; }
  // One head's page of a block, to write to.
  std::byte* page(int64_t head, int64_t block) {
    return pages_[static_cast<size_t>(block)].get() + head * layout_.bytes();
  }
  const std::byte* page(int64_t head, int64_t block) const {
    return pages_[static_cast<size_t>(block)].get() + head * layout_.bytes();
  }

  const KvLayout& layout() const { return layout_; }
  const StateDecl& state() const { return *state_; }
  int64_t page_bytes() const { return onw::cpu::page_bytes(*state_, layout_.format); }
  int64_t bytes_held() const;  // pages in use or reserved, shared or not

 private:
  Result<void> grow_table(int64_t blocks);
  void set(int64_t block, Page page);

  const StateDecl* state_;
  std::shared_ptr<PagePool> pool_;
  KvLayout layout_;
  int64_t first_kept_ = 0;
  int64_t first_block_ = 0;
  int64_t block_capacity_ = 0;
  std::vector<Page> pages_;                 // by absolute block; null before first_block_
  std::vector<Page> spare_;                 // reserved, or given back by the window
  std::vector<const std::byte*> pointers_;  // [heads][block_capacity_]
};

// Pages that a sequence of `tokens` holds for this state, with `slack` positions that a window keeps to go back.
int64_t pages_needed(const StateDecl& state, int64_t tokens, int64_t slack);

}  // namespace onw::cpu
