#include "runtime/suffix_automaton.h"

namespace onw {
namespace {

constexpr size_t kFewestBuckets = 64;
constexpr int32_t kRoot = 0;

}  // namespace

SuffixAutomaton::SuffixAutomaton() : states_(1), buckets_(kFewestBuckets, -1) {}

int64_t SuffixAutomaton::bytes() const {
  return static_cast<int64_t>(states_.capacity() * sizeof(State) + edges_.capacity() * sizeof(Edge) +
                              buckets_.capacity() * sizeof(int32_t));
}

size_t SuffixAutomaton::bucket(int32_t state, int32_t token) const {
  const uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(state)) << 32 | static_cast<uint32_t>(token);
  return static_cast<size_t>(key * 0x9E3779B97F4A7C15U >> 32) & (buckets_.size() - 1);
}

int32_t SuffixAutomaton::find(int32_t state, int32_t token) const {
  int32_t edge = buckets_[bucket(state, token)];
  while (edge >= 0) {
    const Edge& e = edges_[static_cast<size_t>(edge)];
    if (e.from == state && e.token == token) break;
    edge = e.next_in_bucket;
  }
  return edge;
}

void SuffixAutomaton::add_edge(int32_t from, int32_t token, int32_t to) {
  if (edges_.size() == buckets_.size()) {
    buckets_.assign(buckets_.size() * 2, -1);
    for (size_t i = 0; i < edges_.size(); ++i) {
      int32_t& first = buckets_[bucket(edges_[i].from, edges_[i].token)];
      edges_[i].next_in_bucket = first;
      first = static_cast<int32_t>(i);
    }
  }
  State& state = states_[static_cast<size_t>(from)];
  int32_t& first = buckets_[bucket(from, token)];
  edges_.push_back({from, token, to, state.first_edge, first});
  state.first_edge = first = static_cast<int32_t>(edges_.size()) - 1;
}

// A copy of `state` for its strings of at most `length` tokens, which now end where the others do not.
int32_t SuffixAutomaton::clone(int32_t state, int32_t length) {
  const auto copy = static_cast<int32_t>(states_.size());
  const State original = states_[static_cast<size_t>(state)];
  states_.push_back({.length = length, .link = original.link, .end = original.end});
  for (int32_t edge = original.first_edge; edge >= 0; edge = edges_[static_cast<size_t>(edge)].next_of_state) {
    const Edge e = edges_[static_cast<size_t>(edge)];
    add_edge(copy, e.token, e.to);
  }
  states_[static_cast<size_t>(state)].link = copy;
  return copy;
}

// The state of the longest string of `state` with the token of `edge` behind it, divided from longer ones.
int32_t SuffixAutomaton::link_for(int32_t state, int32_t edge) {
  const Edge e = edges_[static_cast<size_t>(edge)];
  const int32_t length = states_[static_cast<size_t>(state)].length + 1;
  if (states_[static_cast<size_t>(e.to)].length == length) return e.to;
  const int32_t copy = clone(e.to, length);
  for (; state >= 0; state = states_[static_cast<size_t>(state)].link) {
    const int32_t same = find(state, e.token);
    if (same < 0 || edges_[static_cast<size_t>(same)].to != e.to) break;
    edges_[static_cast<size_t>(same)].to = copy;
  }
  return copy;
}

void SuffixAutomaton::append(int32_t token) {
  const auto now = static_cast<int32_t>(states_.size());
  const int32_t length = states_[static_cast<size_t>(last_)].length + 1;
  states_.push_back({.length = length, .end = length});
  int32_t state = last_;
  int32_t edge = -1;
  for (; state >= 0; state = states_[static_cast<size_t>(state)].link) {
    edge = find(state, token);
    if (edge >= 0) break;
    add_edge(state, token, now);
  }
  const int32_t link = state < 0 ? kRoot : link_for(state, edge);
  states_[static_cast<size_t>(now)].link = link;
  last_ = now;
  see_again();
}

// Says where the suffixes of the text ended before, then that they end here.
void SuffixAutomaton::see_again() {
  int32_t state = states_[static_cast<size_t>(last_)].link;
  repeated_ = {};
  if (state != kRoot) repeated_ = {states_[static_cast<size_t>(state)].length, states_[static_cast<size_t>(state)].end};
  const int32_t here = states_[static_cast<size_t>(last_)].length;
  for (int i = 0; i < kFreshSuffixes && state > kRoot; ++i) {
    states_[static_cast<size_t>(state)].end = here;
    state = states_[static_cast<size_t>(state)].link;
  }
}

void SuffixAutomaton::advance(Cursor& cursor, int32_t token) const {
  const auto state = [&]() -> const State& { return states_[static_cast<size_t>(cursor.state)]; };
  // A state that was divided since keeps its longer strings: the others are those of its link.
  while (cursor.state != kRoot && cursor.length <= states_[static_cast<size_t>(state().link)].length)
    cursor.state = state().link;
  int32_t edge = find(cursor.state, token);
  while (edge < 0 && cursor.state != kRoot) {
    cursor.state = state().link;
    cursor.length = state().length;
    edge = find(cursor.state, token);
  }
  if (edge < 0) return;  // not a single token of it occurs: the root, and length 0
  cursor.state = edges_[static_cast<size_t>(edge)].to;
  ++cursor.length;
}

SuffixAutomaton::Match SuffixAutomaton::at(Cursor cursor) const {
  if (cursor.length == 0) return {};
  return {cursor.length, states_[static_cast<size_t>(cursor.state)].end};
}

}  // namespace onw
