// Where the constants of graphs lie: in the model's own weight files, which follow each other in one range of
// addresses, and what is not there (shapes, axes, weights in memory) in memory behind them. OpenVINO gets one pointer
// to all of it, and each constant an offset: nothing is copied.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/address_range.h"
#include "targets/weights.h"

namespace onw::openvino {

class Constants {
 public:
  // `weights` names the files; with `copies` all constants go into memory, for graphs that are written out with a
  // compact file of their own. Errors: io, out_of_memory.
  static Result<Constants> create(const WeightSet& weights, bool copies = false);

  // The offset of a part of a weight. A weight that lies in no file is copied, once. Errors: out_of_memory.
  Result<int64_t> place(std::span<const std::byte> weight);
  // The offset of a small constant; equal ones share it.
  Result<int64_t> add(std::span<const std::byte> bytes);

  std::byte* data() const { return range_.data(); }
  int64_t bytes() const { return static_cast<int64_t>(memory_begin_ + used_); }
  // Of the copies and small constants alone.
  std::span<const std::byte> memory() const { return {range_.data() + memory_begin_, used_}; }
  // The weight files in the range, for who maps it as we did.
  struct MappedAt {
    std::filesystem::path path;
    int64_t at = 0, bytes = 0;
  };
  std::vector<MappedAt> files() const;
  // Pages of the files that compiling has read and nobody needs any more.
  void drop_file_pages() const { range_.drop_file_pages(0, memory_begin_); }

 private:
  struct File {
    std::filesystem::path path;
    std::span<const std::byte> bytes;  // as the weights' views point into it
    size_t at = 0;                     // in our range
  };
  Result<int64_t> append(std::span<const std::byte> bytes);

  std::vector<File> files_;
  std::shared_ptr<const void> owner_;
  AddressRange range_;
  size_t memory_begin_ = 0, used_ = 0, committed_ = 0;
  std::map<std::string, int64_t, std::less<>> small_;
  std::map<const std::byte*, int64_t> copied_;
};

}  // namespace onw::openvino
