#include "runtime/mtp_sequence.h"

#include <algorithm>
#include <utility>

namespace onw {
namespace {

class MtpCheckpoint final : public Checkpoint {
 public:
  MtpCheckpoint(CheckpointPtr of_model, CheckpointPtr of_layer, MtpTrack of_track)
      : model(std::move(of_model)), layer(std::move(of_layer)), track(std::move(of_track)) {}
  int64_t length() const override { return model->length(); }
  int64_t bytes() const override { return model->bytes() + layer->bytes() + track.bytes(); }
  const CheckpointPtr model, layer;
  const MtpTrack track;
};

}  // namespace

int64_t MtpTrack::position(int64_t entry) const {
  const auto after = std::ranges::upper_bound(runs, entry, {}, &Run::first);
  CHECK(after != runs.begin());
  return entry + std::prev(after)->ahead;
}

int64_t MtpTrack::entries_below(int64_t position) const {
  int64_t below = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    const int64_t end = i + 1 < runs.size() ? runs[i + 1].first : entries;
    if (runs[i].first + runs[i].ahead >= position) break;
    below = std::min(end, position - runs[i].ahead);
  }
  return below;
}

void MtpTrack::add_entry(int64_t position) {
  const int64_t ahead = position - entries;
  if (runs.empty() || runs.back().ahead != ahead) runs.push_back({entries, ahead});
  ++entries;
}

void MtpTrack::cut_entries(int64_t count) {
  if (count >= entries) return;
  entries = count;
  assumed.reset();
  while (!runs.empty() && runs.back().first >= count) runs.pop_back();
}

void MtpTrack::cut_queue(int64_t length, int64_t width) {
  const int64_t kept = std::clamp<int64_t>(length - queue_begin, 0, queued(width));
  queue.resize(static_cast<size_t>(kept * width));
  next.resize(std::min(next.size(), static_cast<size_t>(std::max<int64_t>(kept - 1, 0))));
}

void MtpTrack::take_from_queue(int64_t count, int64_t width) {
  queue.erase(queue.begin(), queue.begin() + count * width);
  next.erase(next.begin(), next.begin() + std::min<int64_t>(count, static_cast<int64_t>(next.size())));
  queue_begin += count;
}

int64_t MtpTrack::bytes() const {
  return static_cast<int64_t>(runs.capacity() * sizeof(Run) + queue.capacity() * sizeof(float) +
                              next.capacity() * sizeof(int32_t));
}

Result<void> MtpSequence::reserve(int64_t tokens) {
  RETURN_IF_ERROR(model_->reserve(tokens));
  return layer_->reserve(tokens);
}

void MtpSequence::ran(std::span<const Row> rows, std::span<const float> hidden) {
  ran_.clear();
  for (const Row& row : rows) ran_.push_back({row.index, row.token, row.wants_hidden, row.embedding.empty()});
  ran_hidden_.assign(hidden.begin(), hidden.end());
}

// Rows of the last step stay: their hidden states queue, and are what the queued one before was waiting for.
void MtpSequence::keep(size_t rows) {
  size_t at = 0;  // in ran_hidden_
  for (const Ran& row : std::span(ran_).first(rows)) {
    const int64_t last = track_.entries == 0 ? -1 : track_.position(track_.entries - 1);
    // The last entry was made for a token that was drawn; should another have come in its place, it goes.
    if (last == row.index - 1 && track_.assumed && (*track_.assumed != row.token || !row.is_text)) {
      track_.cut_entries(track_.entries - 1);
      layer_->truncate(track_.entries);
    }
    track_.assumed.reset();
    const int64_t queued = track_.queued(width_);
    const bool follows = queued > 0 && track_.queue_begin + queued == row.index && row.is_text;
    if (queued > 0 && follows) track_.next.push_back(row.token);
    if (queued > 0 && !follows) track_.cut_queue(track_.queue_begin + queued - 1, width_);  // that one has no token
    if (!row.has_hidden) continue;
    // What queues is contiguous: a gap leaves out what is before it, which is little (it is run long before).
    if (const int64_t now = track_.queued(width_); now == 0 || track_.queue_begin + now != row.index) {
      track_.queue.clear();
      track_.next.clear();
      track_.queue_begin = row.index;
    }
    const auto from = ran_hidden_.begin() + static_cast<int64_t>(at) * width_;
    track_.queue.insert(track_.queue.end(), from, from + width_);
    ++at;
  }
  ran_.clear();
  ran_hidden_.clear();
}

void MtpSequence::settle() { keep(ran_.size()); }

void MtpSequence::commit(int rows_kept) {
  model_->commit(rows_kept);
  keep(std::min(ran_.size(), static_cast<size_t>(std::max(rows_kept, 0))));
}

void MtpSequence::shorten(int64_t length) {
  ran_.clear();
  ran_hidden_.clear();
  track_.cut_queue(length, width_);
  // An entry needs its position and the token behind it, or the token that was assumed there.
  const int64_t below = track_.assumed && length > 0 ? length : length - 1;
  track_.cut_entries(track_.entries_below(std::max<int64_t>(below, 0)));
  layer_->truncate(track_.entries);
}

int64_t MtpSequence::truncate(int64_t n) {
  settle();
  const int64_t before = model_->length(), reached = model_->truncate(n);
  if (reached < before) {
    track_.assumed.reset();  // it stood behind what is gone
    shorten(reached);
  }
  return reached;
}

// Hidden states that queue are left out, but for the last: whoever keeps a state runs the layer before.
Result<CheckpointPtr> MtpSequence::checkpoint() {
  settle();
  auto of_model = model_->checkpoint();
  RETURN_IF_ERROR(of_model);
  auto of_layer = layer_->checkpoint();
  RETURN_IF_ERROR(of_layer);
  MtpTrack kept{.runs = track_.runs, .entries = track_.entries, .assumed = track_.assumed};
  if (const int64_t queued = track_.queued(width_); queued > 0) {
    kept.queue_begin = track_.queue_begin + queued - 1;
    kept.queue.assign(track_.queue.end() - width_, track_.queue.end());
  }
  return std::make_shared<MtpCheckpoint>(std::move(*of_model), std::move(*of_layer), std::move(kept));
}

Result<void> MtpSequence::restore(const Checkpoint& checkpoint) {
  const auto* mine = dynamic_cast<const MtpCheckpoint*>(&checkpoint);
  if (mine == nullptr) return error(Code::invalid_argument, "the checkpoint belongs to another target");
  RETURN_IF_ERROR(model_->restore(*mine->model));
  ran_.clear();
  ran_hidden_.clear();
  track_ = mine->track;
  if (!layer_->restore(*mine->layer)) drop_layer();
  return {};
}

Result<std::unique_ptr<Sequence>> MtpSequence::fork(int64_t n) {
  settle();
  auto of_model = model_->fork(n);
  RETURN_IF_ERROR(of_model);
  MtpTrack track = track_;
  if (n < length()) track.assumed.reset();
  track.cut_queue(n, width_);
  track.cut_entries(track.entries_below(std::max<int64_t>(track.assumed ? n : n - 1, 0)));
  auto of_layer = layer_->fork(track.entries);
  RETURN_IF_ERROR(of_layer);
  auto child = std::make_unique<MtpSequence>(std::move(*of_model), std::move(*of_layer), width_);
  child->track_ = std::move(track);
  return child;
}

Result<void> MtpSequence::import_from(StateSource& source) {
  RETURN_IF_ERROR(model_->import_from(source));
  drop_layer();
  return {};
}

void MtpSequence::drop_layer() {
  track_ = {};
  ran_.clear();
  ran_hidden_.clear();
  layer_->truncate(0);
}

}  // namespace onw
