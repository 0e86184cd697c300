// Where the time of a step goes: seconds, bytes and operations by op and name ("linear down_proj"), over all layers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "targets/op_observer.h"

namespace onw::cli {

struct ProfileLine {
  std::string op;    // "linear"
  std::string name;  // the label without its layer: "down_proj"
  int64_t calls = 0;
  double seconds = 0;
  int64_t weight_bytes = 0;
  int64_t weight_ops = 0;
};

class Profile final : public OpObserver {
 public:
  void seen(const SeenOp& op) override;

  // What took longest first. `whole_seconds`: of the same steps in all; what no op accounts for (embedding, gathering
  // logits) is the line "outside".
  std::vector<ProfileLine> lines(double whole_seconds) const;

 private:
  std::vector<ProfileLine> lines_;  // in the order of the graph
};

// A table for people; figures are per step of `steps`.
std::string profile_table(const std::vector<ProfileLine>& lines, int64_t steps);

}  // namespace onw::cli
