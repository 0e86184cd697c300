#include "runtime/mtp.h"

#include <algorithm>
#include <utility>

#include "runtime/mtp_sequence.h"

namespace onw {
namespace {

MtpSequence& mine(Sequence& sequence) { return static_cast<MtpSequence&>(sequence); }
const MtpSequence& mine(const Sequence& sequence) { return static_cast<const MtpSequence&>(sequence); }

class MtpExecutable final : public Mtp {
 public:
  MtpExecutable(std::unique_ptr<Executable> model, std::unique_ptr<Executable> layer, int64_t shared_bytes)
      : model_(std::move(model)),
        layer_(std::move(layer)),
        shared_bytes_(shared_bytes),
        width_(model_->info().hidden) {}

  const ExecutableInfo& info() const override { return model_->info(); }
  const ExecutableInfo& layer_info() const override { return layer_->info(); }
  Cost cost(const StepShape& shape) const override { return model_->cost(shape); }
  bool mixes_prompt_and_decode() const override { return model_->mixes_prompt_and_decode(); }
  void observe(OpObserver* observer) override { model_->observe(observer); }

  Result<std::unique_ptr<Sequence>> new_sequence() override {
    auto of_model = model_->new_sequence();
    RETURN_IF_ERROR(of_model);
    auto of_layer = layer_->new_sequence();
    RETURN_IF_ERROR(of_layer);
    return std::make_unique<MtpSequence>(std::move(*of_model), std::move(*of_layer), width_);
  }

  MemoryNeed need(int64_t tokens, int sequences) const override {
    MemoryNeed all = model_->need(tokens, sequences);
    const MemoryNeed layer = layer_->need(tokens, sequences);
    all.weights_bytes += std::max<int64_t>(0, layer.weights_bytes - shared_bytes_);
    all.state_bytes += layer.state_bytes;
    // Hidden states of a step, and as many that queue.
    all.work_bytes +=
        layer.work_bytes + 2 * model_->info().max_step_rows * width_ * static_cast<int64_t>(sizeof(float));
    return all;
  }

  // A short head's share of the whole one, by its rows.
  Cost layer_cost(const StepShape& shape, bool short_head) const override {
    const Cost whole = layer_->cost(shape);
    const ExecutableInfo& info = layer_->info();
    if (!short_head || info.short_vocabulary == 0) return whole;
    StepShape headless = shape;
    headless.logits_rows = 0;
    const double body = layer_->cost(headless).seconds;
    const double share = static_cast<double>(info.short_vocabulary) / static_cast<double>(info.vocabulary);
    return {body + std::max(0.0, whole.seconds - body) * share};
  }

  Result<Outputs> run(const Step& step, const CancelToken& cancel) override {
    std::vector<Sequence*> sequences;
    for (Sequence* sequence : step.sequences) {
      if (sequence != nullptr) mine(*sequence).settle();
      sequences.push_back(sequence == nullptr ? nullptr : &mine(*sequence).model());
    }
    auto outputs = model_->run({.sequences = sequences, .rows = step.rows}, cancel);
    RETURN_IF_ERROR(outputs);
    std::span<const float> hidden = outputs->hidden;
    for (auto rows = step.rows; !rows.empty();) {
      const int sequence = rows.front().sequence;
      const auto end = std::ranges::find_if(rows, [sequence](const Row& row) { return row.sequence != sequence; });
      const auto own = rows.first(static_cast<size_t>(end - rows.begin()));
      const auto values = static_cast<size_t>(std::ranges::count(own, true, &Row::wants_hidden) * width_);
      mine(*step.sequences[static_cast<size_t>(sequence)]).ran(own, hidden.first(values));
      hidden = hidden.subspan(values);
      rows = rows.subspan(own.size());
    }
    return outputs;
  }

  bool can_guess(const Sequence& sequence) const override {
    const MtpTrack& track = mine(sequence).track();
    const int64_t queued = track.queued(width_);
    return queued > 0 && track.queue_begin + queued == sequence.length();
  }

  Result<void> guess(std::span<Guesses> wanted, bool short_head, const CancelToken& cancel) override {
    std::vector<Guesses*> able;
    for (Guesses& g : wanted) {
      g.tokens.clear();
      mine(*g.sequence).settle();
      const int64_t room = layer_->info().max_context - g.sequence->length();
      g.count = static_cast<int>(std::min<int64_t>(g.count, room));
      if (g.count > 0 && can_guess(*g.sequence) && static_cast<int>(able.size()) < layer_->info().max_step_rows)
        able.push_back(&g);
    }
    auto done = able.empty() ? Result<void>() : guess_all(able, short_head, cancel);
    for (Guesses* g : able) after(mine(*g->sequence), done);
    if (!done)
      for (Guesses* g : able) g->tokens.clear();
    return done;
  }

  Result<void> catch_up(Sequence& sequence, int64_t least, const CancelToken& cancel) override {
    MtpSequence& s = mine(sequence);
    s.settle();
    if (static_cast<int64_t>(s.track().next.size()) < std::max<int64_t>(least, 1)) return {};
    auto done = run_queue(s, cancel);
    after(s, done);
    return done;
  }

 private:
  // Entries for guesses go; what an error leaves is not to be trusted.
  static void after(MtpSequence& s, const Result<void>& done) {
    if (!done && done.error().code != Code::cancelled) return s.drop_layer();
    s.layer().truncate(s.track().entries);
  }

  Row layer_row(int sequence, int64_t index, int64_t position, int32_t token, std::span<const float> carried) const {
    Row row = text_row(sequence, position, token, false);
    row.index = index;
    row.carried = carried;
    return row;
  }

  // What queues and whose tokens are known.
  Result<void> run_queue(MtpSequence& s, const CancelToken& cancel) {
    MtpTrack& track = s.track();
    while (!track.next.empty()) {
      const auto count = std::min<int64_t>(static_cast<int64_t>(track.next.size()), layer_->info().max_step_rows);
      std::vector<Row> rows;
      add_queued(s, 0, count, rows);
      Sequence* const sequence = &s.layer();
      auto outputs = layer_->run({.sequences = {&sequence, 1}, .rows = rows}, cancel);
      RETURN_IF_ERROR(outputs);
      enter_queued(s, count);
    }
    return {};
  }

  void add_queued(MtpSequence& s, int sequence, int64_t count, std::vector<Row>& rows) const {
    const MtpTrack& track = s.track();
    for (int64_t i = 0; i < count; ++i)
      rows.push_back(
          layer_row(sequence, track.entries + i, track.queue_begin + i, track.next[static_cast<size_t>(i)],
                    std::span(track.queue).subspan(static_cast<size_t>(i * width_), static_cast<size_t>(width_))));
  }

  // They were run, and stay.
  void enter_queued(MtpSequence& s, int64_t count) const {
    s.layer().commit(static_cast<int>(count));
    for (int64_t i = 0; i < count; ++i) s.track().add_entry(s.track().queue_begin + i);
    s.track().take_from_queue(count, width_);
  }

  Result<void> guess_all(std::span<Guesses* const> able, bool short_head, const CancelToken& cancel) {
    const int64_t most = std::max<int64_t>(1, layer_->info().max_step_rows / static_cast<int64_t>(able.size()));
    for (Guesses* g : able)
      if (MtpSequence& s = mine(*g->sequence); s.track().queued(width_) > most) RETURN_IF_ERROR(run_queue(s, cancel));
    for (Guesses* g : able) mine(*g->sequence).track().next.push_back(g->next);
    std::vector<Row> rows;
    std::vector<int64_t> counts;
    for (size_t i = 0; i < able.size(); ++i) {
      MtpSequence& s = mine(*able[i]->sequence);
      counts.push_back(s.track().queued(width_));
      add_queued(s, static_cast<int>(i), counts.back(), rows);
      rows.back().wants_logits = rows.back().wants_hidden = true;
    }
    auto first = step(able, rows, short_head, cancel);
    for (Guesses* g : able)
      if (!first) mine(*g->sequence).track().next.pop_back();
    RETURN_IF_ERROR(first);
    for (size_t i = 0; i < able.size(); ++i) {
      enter_queued(mine(*able[i]->sequence), counts[i]);
      mine(*able[i]->sequence).track().assumed = able[i]->next;
    }
    std::vector<Guesses*> left(able.begin(), able.end());
    for (int k = 1;; ++k) {
      const std::vector<float> carried = still_wanted(left, k);
      if (left.empty()) return {};
      rows.clear();
      for (size_t i = 0; i < left.size(); ++i) {
        MtpSequence& s = mine(*left[i]->sequence);
        rows.push_back(
            layer_row(static_cast<int>(i), s.layer().length(), s.length() - 1 + k, left[i]->tokens.back(),
                      std::span(carried).subspan(i * static_cast<size_t>(width_), static_cast<size_t>(width_))));
        rows.back().wants_logits = rows.back().wants_hidden = true;
      }
      RETURN_IF_ERROR(step(left, rows, short_head, cancel));
    }
  }

  // Runs the layer, and draws a token for each from its row of logits; hidden_ is the layer's.
  Result<void> step(std::span<Guesses* const> guesses, std::span<const Row> rows, bool short_head,
                    const CancelToken& cancel) {
    std::vector<Sequence*> sequences;
    for (Guesses* g : guesses) sequences.push_back(&mine(*g->sequence).layer());
    auto outputs = layer_->run({.sequences = sequences, .rows = rows, .short_head = short_head}, cancel);
    RETURN_IF_ERROR(outputs);
    const ExecutableInfo& info = layer_->info();
    const auto vocabulary = static_cast<size_t>(short_head ? info.short_vocabulary : info.vocabulary);
    for (size_t i = 0; i < guesses.size(); ++i) {
      Guesses& g = *guesses[i];
      g.tokens.push_back(
          g.draw(outputs->logits.subspan(i * vocabulary, vocabulary), static_cast<int>(g.tokens.size())));
    }
    hidden_.assign(outputs->hidden.begin(), outputs->hidden.end());
    return {};
  }

  // Of those that were in the last step, whoever wants a token more; and their hidden states.
  std::vector<float> still_wanted(std::vector<Guesses*>& left, int k) const {
    std::vector<float> carried;
    std::vector<Guesses*> wanting;
    for (size_t i = 0; i < left.size(); ++i) {
      if (left[i]->count <= k || left[i]->tokens.back() < 0) continue;
      wanting.push_back(left[i]);
      const auto from = hidden_.begin() + static_cast<int64_t>(i) * width_;
      carried.insert(carried.end(), from, from + width_);
    }
    left = std::move(wanting);
    return carried;
  }

  std::unique_ptr<Executable> model_, layer_;
  int64_t shared_bytes_;
  int64_t width_;
  std::vector<float> hidden_;
};

}  // namespace

Result<std::unique_ptr<Mtp>> make_mtp(std::unique_ptr<Executable> model, std::unique_ptr<Executable> layer,
                                      int64_t shared_bytes) {
  const ExecutableInfo &m = model->info(), &l = layer->info();
  if (!l.carries || l.hidden != m.hidden || l.vocabulary != m.vocabulary || l.max_context < m.max_context ||
      !l.truncates_freely)
    return error(Code::invalid_argument,
                 "a layer of width {} and {} tokens does not predict for a model of width {} and {} tokens", l.hidden,
                 l.vocabulary, m.hidden, m.vocabulary);
  return std::make_unique<MtpExecutable>(std::move(model), std::move(layer), shared_bytes);
}

}  // namespace onw
