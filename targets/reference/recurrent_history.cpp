#include "targets/reference/recurrent_history.h"

#include <algorithm>

namespace onw::reference {

RecurrentHistory::RecurrentHistory(const StateDecl& state)
    : state_(&state), form_(recurrent_form(state)), reach_(state.kind == StateKind::conv ? state.kernel - 1 : 0) {
  begin_at(0);
}

// Nothing but an edge, of zeros so far.
void RecurrentHistory::begin_at(int64_t edge) {
  oldest_ = edge;
  first_ = edge - reach_;
  rows_.assign(static_cast<size_t>(reach_ * form_.row_floats), 0);
  edges_.clear();
  if (state_->kind == StateKind::delta) add_edge(edge);
}

int64_t RecurrentHistory::bytes() const {
  size_t floats = rows_.size();
  for (const auto& [position, edge] : edges_) floats += edge.size();
  return static_cast<int64_t>(floats * sizeof(float));
}

float* RecurrentHistory::row(int64_t position) {
  CHECK(position >= first_ && position <= length());
  const auto at = static_cast<size_t>((position - first_) * form_.row_floats);
  if (at == rows_.size()) rows_.resize(at + static_cast<size_t>(form_.row_floats));
  return rows_.data() + at;
}

std::vector<float>& RecurrentHistory::add_edge(int64_t position) {
  return edges_[position] = std::vector<float>(static_cast<size_t>(form_.edge_floats));
}

void RecurrentHistory::truncate(int64_t length) {
  if (length == 0) return begin_at(0);
  CHECK(length >= oldest_);
  if (length > this->length()) return;
  rows_.resize(static_cast<size_t>((length - first_) * form_.row_floats));
  edges_.erase(edges_.upper_bound(length), edges_.end());
}

void RecurrentHistory::settle(int64_t length) {
  const int64_t keep = std::max(oldest_, chunk_begin(length) - kDeltaChunk);
  rows_.erase(rows_.begin(), rows_.begin() + (keep - oldest_) * form_.row_floats);
  first_ += keep - oldest_;
  oldest_ = keep;
  edges_.erase(edges_.begin(), edges_.lower_bound(keep));
}

Result<void> RecurrentHistory::export_to(StateSink& sink) const {
  auto& self = const_cast<RecurrentHistory&>(*this);
  const int64_t base = chunk_begin(length());
  const float* log = rows_.data() + (base - first_) * form_.row_floats;
  const float* edge = state_->kind == StateKind::conv ? log - form_.edge_floats : self.edge(base).data();
  return export_recurrent(*state_, edge, log, length() - base, sink);
}

Result<void> RecurrentHistory::import_from(StateSource& source) {
  const int64_t base = chunk_begin(source.length());
  begin_at(base);
  rows_.resize(static_cast<size_t>((reach_ + source.length() - base) * form_.row_floats));
  float* log = rows_.data() + reach_ * form_.row_floats;
  return import_recurrent(*state_, source, state_->kind == StateKind::conv ? rows_.data() : edge(base).data(), log);
}

}  // namespace onw::reference
