// One convolution or delta state of one sequence (targets/recurrent_state.h): the edge and the log of the chunk that it
// stands in, and of the one before, so that a step can be taken back. Pages are counted by reference, and a shared one
// is never written.
#pragma once

#include <cstdint>
#include <memory>

#include "targets/cpu/page_pool.h"
#include "targets/recurrent_state.h"

namespace onw::cpu {

class RecurrentPages {
 public:
  RecurrentPages(const StateDecl& state, std::shared_ptr<PagePool> pool);

  const StateDecl& state() const { return *state_; }
  int64_t row_floats() const { return form_.row_floats; }
  int64_t bytes_held() const;

  // Makes a step of `rows` at `length` possible: its rows go to the log, and, where it passes an edge, what follows
  // goes to next_edge() and next_log(), which until then hold the chunk before. Errors: out_of_memory.
  Result<void> prepare(int64_t length, int64_t rows);
  Result<void> reserve();

  const float* edge() const { return floats(now_.edge); }
  float* log() { return floats(now_.log); }
  float* next_edge() { return floats(other_.edge); }
  float* next_log() { return floats(other_.log); }

  // The prepared step is done.
  void extend(int64_t length, int64_t rows);

  // The longest restorable length of at most n, for a state of `length` tokens.
  int64_t restorable(int64_t n, int64_t length) const;
  // Back to n, which is restorable.
  void go_back(int64_t n, int64_t length);

  // A copy shares the pages; a snapshot leaves the chunk before behind.
  RecurrentPages snapshot() const;

  Result<void> export_to(int64_t length, StateSink& sink) const;
  // Into an empty state.
  Result<void> import_from(StateSource& source);

 private:
  struct Side {
    Page edge, log;
  };
  static float* floats(const Page& page) { return reinterpret_cast<float*>(page.get()); }
  Result<void> make(Page& page, int64_t floats, bool keep);

  const StateDecl* state_;
  RecurrentForm form_;
  std::shared_ptr<PagePool> pool_;
  Side now_, other_;
  int64_t before_ = -1;  // where the chunk begins that other_ holds whole; -1: none
};

// Bytes of one state of one sequence.
int64_t recurrent_bytes(const StateDecl& state);

}  // namespace onw::cpu
