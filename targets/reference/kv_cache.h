// K and V of one layer and one sequence, every position kept: windows are masks here, never rings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "graph/program.h"
#include "targets/executable.h"

namespace onw::reference {

class KvCache {
 public:
  KvCache(const StateDecl& state, KvFormat format);

  // Puts k and v, [heads, head_dim] each, at `position` (<= length()), in the cache's format.
  void write(int64_t position, std::span<const float> k, std::span<const float> v);
  void truncate(int64_t length);
  int64_t length() const { return length_; }
  int64_t bytes_per_position() const;

  // One head: [length][head_dim] in the format's elements, scales F16 [length] for INT8.
  std::span<std::byte> k(int64_t head) { return parts_[static_cast<size_t>(head)].k; }
  std::span<std::byte> v(int64_t head) { return parts_[static_cast<size_t>(head)].v; }
  std::span<uint16_t> k_scale(int64_t head) { return parts_[static_cast<size_t>(head)].k_scale; }
  std::span<uint16_t> v_scale(int64_t head) { return parts_[static_cast<size_t>(head)].v_scale; }
  void resize(int64_t length);
  KvFormat format() const { return format_; }
  const StateDecl& state() const { return *state_; }

 private:
  struct Part {
    std::vector<std::byte> k, v;
    std::vector<uint16_t> k_scale, v_scale;
  };
  int64_t element_bytes() const;

  const StateDecl* state_;
  KvFormat format_;
  int64_t length_ = 0;
  std::vector<Part> parts_;  // by head
};

}  // namespace onw::reference
