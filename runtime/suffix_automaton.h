// All substrings of a text of tokens, in memory that grows with its length: the automaton of Blumer, Blumer, Haussler,
// Ehrenfeucht, Chen and Seiferas, "The smallest automaton recognizing the subwords of a text" (1985), built token by
// token. At most 2 states and 3 edges a token, some 100 bytes; appending takes constant time on average.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace onw {

class SuffixAutomaton {
 public:
  // Where tokens were seen before: the last `length` of some text end before token `end` of this one.
  struct Match {
    int32_t length = 0;  // 0: nowhere
    int32_t end = 0;
  };
  // How far another text is known here: its last `length` tokens lead to `state`.
  struct Cursor {
    int32_t state = 0;
    int32_t length = 0;
  };

  SuffixAutomaton();

  void append(int32_t token);
  int64_t length() const { return states_[static_cast<size_t>(last_)].length; }
  int64_t bytes() const;

  // The longest suffix of this text that also ends earlier in it, and the latest such end, unless more than
  // kFreshSuffixes ever longer suffixes ended there too: then an earlier one.
  Match repeated() const { return repeated_; }
  static constexpr int kFreshSuffixes = 32;

  // Moves a cursor on by a token of its text, to the longest suffix of that which occurs here. The automaton may have
  // grown meanwhile.
  void advance(Cursor& cursor, int32_t token) const;
  Match at(Cursor cursor) const;

 private:
  struct State {  // strings with the same ends; each but the longest is a suffix of it
    int32_t length = 0;
    int32_t link = -1;  // the state of the longest suffix with more ends
    int32_t end = 0;    // one of the ends, the latest that is known
    int32_t first_edge = -1;
  };
  struct Edge {
    int32_t from = 0, token = 0, to = 0;
    int32_t next_of_state = -1, next_in_bucket = -1;
  };

  size_t bucket(int32_t state, int32_t token) const;
  int32_t find(int32_t state, int32_t token) const;  // the edge, or -1
  void add_edge(int32_t from, int32_t token, int32_t to);
  int32_t clone(int32_t state, int32_t length);
  int32_t link_for(int32_t state, int32_t edge);
  void see_again();

  std::vector<State> states_;
  std::vector<Edge> edges_;
  std::vector<int32_t> buckets_;  // the first edge of each; a power of two of them
  int32_t last_ = 0;              // the state of the whole text
  Match repeated_;
};

}  // namespace onw
