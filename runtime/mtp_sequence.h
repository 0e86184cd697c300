// A sequence of a model with that of the layer which predicts one token further.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "targets/executable.h"

namespace onw {

// What the layer has of a sequence, and what it does not have yet. Positions are those of the model's tokens.
struct MtpTrack {
  // The layer's entries are for positions of ascending runs: entry `first` and those behind it are `ahead` positions
  // further than their index.
  struct Run {
    int64_t first = 0, ahead = 0;
  };
  std::vector<Run> runs;
  int64_t entries = 0;
  std::optional<int32_t> assumed;  // the last entry stands on this token, which the model has not computed

  // Hidden states of positions [queue_begin, queue_begin + n), [n, width], and the tokens behind all but the last.
  int64_t queue_begin = 0;
  std::vector<float> queue;
  std::vector<int32_t> next;

  int64_t queued(int64_t width) const { return static_cast<int64_t>(queue.size()) / width; }
  int64_t position(int64_t entry) const;
  int64_t entries_below(int64_t position) const;  // entries for positions less than this
  void add_entry(int64_t position);
  void cut_entries(int64_t count);
  void cut_queue(int64_t length, int64_t width);  // to what a sequence of `length` tokens has
  void take_from_queue(int64_t count, int64_t width);
  int64_t bytes() const;
};

class MtpSequence final : public Sequence {
 public:
  MtpSequence(std::unique_ptr<Sequence> model, std::unique_ptr<Sequence> layer, int64_t width)
      : model_(std::move(model)), layer_(std::move(layer)), width_(width) {}

  int64_t length() const override { return model_->length(); }
  Result<void> reserve(int64_t tokens) override;
  void commit(int rows_kept) override;
  int64_t truncate(int64_t n) override;
  Result<CheckpointPtr> checkpoint() override;
  Result<void> restore(const Checkpoint& checkpoint) override;
  Result<std::unique_ptr<Sequence>> fork(int64_t n) override;
  Result<void> export_to(StateSink& sink) const override { return model_->export_to(sink); }
  Result<void> import_from(StateSource& source) override;

  Sequence& model() { return *model_; }
  Sequence& layer() { return *layer_; }
  MtpTrack& track() { return track_; }
  const MtpTrack& track() const { return track_; }

  // Before a step: the one before is kept whole where nobody said otherwise.
  void settle();
  // After a step, before commit: its rows, and the hidden states of those that wanted them, in order.
  void ran(std::span<const Row> rows, std::span<const float> hidden);
  // Forgets what the layer has, after an error of it.
  void drop_layer();

 private:
  void keep(size_t rows);
  void shorten(int64_t length);

  std::unique_ptr<Sequence> model_, layer_;
  int64_t width_;
  MtpTrack track_;

  struct Ran {
    int64_t index = 0;
    int32_t token = 0;
    bool has_hidden = false, is_text = true;
  };
  std::vector<Ran> ran_;
  std::vector<float> ran_hidden_;
};

}  // namespace onw
