// A model together with the layer that predicts one token further (models/mtp.h), as one Executable: each sequence
// carries the layer's own keys and values, which follow it through commits, truncation, forks and checkpoints. The
// layer reads what the model has computed anyway, and changes none of its results.
//
// The layer's entry for position p stands on the model's hidden state there and on token p + 1, so it exists one step
// later than the model's. Hidden states queue until their token is known and until it pays to run the layer. Where one
// is not to be had (after a branch, or of rows that did not ask for it), its entry is left out: guesses get a little
// worse, and answers do not change.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "targets/executable.h"

namespace onw {

// What one sequence asks of the layer.
struct Guesses {
  Sequence* sequence = nullptr;
  int32_t next = 0;  // the token behind its last, drawn and not computed yet
  int count = 0;     // tokens to guess beyond it
  // Draws guess `k` (from 0) from its row of logits: of the whole vocabulary, or of the short one.
  std::function<int32_t(std::span<const float> logits, int k)> draw;
  std::vector<int32_t> tokens = {};  // the result: as many, or none where the last hidden state is missing
};

class Mtp : public Executable {
 public:
  // Of the layer, not of the model.
  virtual const ExecutableInfo& layer_info() const = 0;
  // Of a step of the layer, with the short head or the whole one.
  virtual Cost layer_cost(const StepShape& shape, bool short_head) const = 0;

  // Whether the last hidden state is there, without which nothing can be guessed. It is where the last row run of the
  // sequence wanted its hidden state and was kept.
  virtual bool can_guess(const Sequence& sequence) const = 0;

  // Guesses for all at once: one step of the layer for each token of the longest. Entries for what the model has
  // computed stay, those for guesses go. Errors: those of the layer; then its keys and values of these sequences are
  // dropped, and nothing of the model is touched.
  virtual Result<void> guess(std::span<Guesses> wanted, bool short_head, const CancelToken& cancel) = 0;

  // Runs the layer over hidden states that queue, where there are at least `least`. Errors: as above.
  virtual Result<void> catch_up(Sequence& sequence, int64_t least, const CancelToken& cancel) = 0;
};

// `layer` takes rows that carry a hidden state of the model's width, and truncates freely; `shared_bytes` of its
// weights are the model's too. Errors: invalid_argument where the two do not fit.
Result<std::unique_ptr<Mtp>> make_mtp(std::unique_ptr<Executable> model, std::unique_ptr<Executable> layer,
                                      int64_t shared_bytes);

}  // namespace onw
