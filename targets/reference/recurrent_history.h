// One recurrent state of one sequence, obviously: every row since an old edge, and the state at every edge since then.
// So rows can be taken back as far as that edge, whatever steps they came in.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "graph/program.h"
#include "targets/recurrent_state.h"

namespace onw::reference {

class RecurrentHistory {
 public:
  explicit RecurrentHistory(const StateDecl& state);

  const StateDecl& state() const { return *state_; }
  int64_t row_floats() const { return form_.row_floats; }
  int64_t bytes() const;

  // The row at `position`: a new one, zero, where position is the length. A convolution has kernel - 1 rows before
  // the oldest length, zero before position 0. Pointers hold until a row is added.
  float* row(int64_t position);
  // A delta state at an edge.
  std::vector<float>& edge(int64_t position) { return edges_.at(position); }
  std::vector<float>& add_edge(int64_t position);

  int64_t length() const { return first_ + static_cast<int64_t>(rows_.size()) / form_.row_floats; }
  // Lengths from here on can be restored, and 0.
  int64_t oldest() const { return oldest_; }
  void truncate(int64_t length);
  // Steps are settled up to `length`: what lies more than a chunk behind it goes.
  void settle(int64_t length);

  Result<void> export_to(StateSink& sink) const;
  Result<void> import_from(StateSource& source);

 private:
  void begin_at(int64_t edge);
  const StateDecl* state_;
  RecurrentForm form_;
  int64_t reach_ = 0;   // rows before `oldest_` that are kept: kernel - 1 of a convolution
  int64_t oldest_ = 0;  // a multiple of 16
  int64_t first_ = 0;   // oldest_ - reach_: the position of the first row kept
  std::vector<float> rows_;
  std::map<int64_t, std::vector<float>> edges_;  // by position; of a delta state
};

}  // namespace onw::reference
