#include "targets/cpu/kv_pages.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"

namespace onw::cpu {

int64_t page_bytes(const StateDecl& state, KvFormat format) {
  return state.heads * KvLayout{format, static_cast<int>(state.head_dim)}.bytes();
}

KvPages::KvPages(const StateDecl& state, KvFormat format, std::shared_ptr<PagePool> pool)
    : state_(&state), pool_(std::move(pool)), layout_{format, static_cast<int>(state.head_dim)} {}

Result<void> KvPages::grow_table(int64_t blocks) {
  if (blocks <= block_capacity_) return {};
  const int64_t capacity = std::max<int64_t>(round_up(blocks, 8), block_capacity_ * 2);
  std::vector<const std::byte*> pointers(static_cast<size_t>(state_->heads * capacity));
  for (int64_t h = 0; h < state_->heads; ++h)
    std::copy_n(pointers_.begin() + h * block_capacity_, block_capacity_, pointers.begin() + h * capacity);
  pointers_ = std::move(pointers);
  block_capacity_ = capacity;
  pages_.reserve(static_cast<size_t>(capacity));
  return {};
}

void KvPages::set(int64_t block, Page page) {
  if (static_cast<int64_t>(pages_.size()) <= block) pages_.resize(static_cast<size_t>(block) + 1);
  for (int64_t h = 0; h < state_->heads; ++h)
    pointers_[static_cast<size_t>(h * block_capacity_ + block)] =
        page == nullptr ? nullptr : page.get() + h * layout_.bytes();
  pages_[static_cast<size_t>(block)] = std::move(page);
}

Result<void> KvPages::prepare(int64_t begin, int64_t end) {
  if (begin >= end) return {};
  RETURN_IF_ERROR(grow_table(ceil_div(end, kPagePositions)));
  for (int64_t b = begin / kPagePositions; b < ceil_div(end, kPagePositions); ++b) {
    const bool there = b < static_cast<int64_t>(pages_.size()) && pages_[static_cast<size_t>(b)] != nullptr;
    if (there && pages_[static_cast<size_t>(b)].use_count() == 1) continue;
    Page fresh;
    if (!spare_.empty()) {
      fresh = std::move(spare_.back());
      spare_.pop_back();
    } else {
      auto allocated = pool_->allocate(page_bytes());
      RETURN_IF_ERROR(allocated);
      fresh = std::move(*allocated);
    }
    if (there) std::memcpy(fresh.get(), pages_[static_cast<size_t>(b)].get(), static_cast<size_t>(page_bytes()));
    set(b, std::move(fresh));
  }
  return {};
}

Result<void> KvPages::reserve(int64_t tokens) {
  const int64_t blocks = ceil_div(tokens, kPagePositions);
  RETURN_IF_ERROR(grow_table(blocks));
  int64_t needed = blocks - static_cast<int64_t>(pages_.size()) - static_cast<int64_t>(spare_.size());
  if (state_->window > 0) {
    const int64_t ring = pages_needed(*state_, tokens, 0);
    needed = std::min(
        needed, ring - (static_cast<int64_t>(pages_.size()) - first_block_) - static_cast<int64_t>(spare_.size()));
  }
  for (; needed > 0; --needed) {
    auto fresh = pool_->allocate(page_bytes());
    RETURN_IF_ERROR(fresh);
    spare_.push_back(std::move(*fresh));
  }
  return {};
}

void KvPages::drop_before(int64_t position) {
  const int64_t block = std::min(position / kPagePositions, static_cast<int64_t>(pages_.size()));
  for (; first_block_ < block; ++first_block_) {
    Page& page = pages_[static_cast<size_t>(first_block_)];
    Page old = page;
    set(first_block_, nullptr);
    if (old.use_count() == 1 && spare_.size() < 2) spare_.push_back(std::move(old));
  }
  first_kept_ = std::max(first_kept_, first_block_ * kPagePositions);
}

KvPages KvPages::share() const {
  KvPages copy(*state_, layout_.format, pool_);
  copy.first_kept_ = first_kept_;
  copy.first_block_ = first_block_;
  copy.block_capacity_ = block_capacity_;
  copy.pages_ = pages_;
  copy.pointers_ = pointers_;
  return copy;
}

void KvPages::begin_at(int64_t position) {
  drop_from(0);
  first_kept_ = position;
  first_block_ = position / kPagePositions;
  pages_.resize(static_cast<size_t>(first_block_));  // null: prepare makes those from here on
}

void KvPages::drop_from(int64_t position) {
  const int64_t blocks = ceil_div(position, kPagePositions);
  for (int64_t b = static_cast<int64_t>(pages_.size()); b-- > blocks;) {
    set(b, nullptr);
    pages_.pop_back();
  }
  if (blocks <= first_block_) first_block_ = first_kept_ = 0;
  if (blocks == 0) spare_.clear();
}

int64_t KvPages::bytes_held() const {
  return (static_cast<int64_t>(pages_.size()) - first_block_ + static_cast<int64_t>(spare_.size())) * page_bytes();
}

int64_t pages_needed(const StateDecl& state, int64_t tokens, int64_t slack) {
  const int64_t all = ceil_div(tokens, kPagePositions);
  if (state.window == 0) return all;
  return std::min(all, ceil_div(state.window + slack, kPagePositions) + 1);
}

}  // namespace onw::cpu
