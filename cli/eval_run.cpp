#include "cli/eval_run.h"

#include <algorithm>
#include <cstring>

#include "store/safetensors.h"
#include "targets/rest.h"

namespace onw::cli {
namespace {

constexpr size_t kWorstLayers = 5;

class ExecutableLogits : public LogitsSource {
 public:
  ExecutableLogits(std::shared_ptr<Executable> executable, bool rests)
      : executable_(std::move(executable)), rests_(rests), tap_(executable_->info().hidden) {
    executable_->observe(&tap_);
  }
  ~ExecutableLogits() override { executable_->observe(nullptr); }

  int64_t vocabulary() const override { return executable_->info().vocabulary; }

  Result<std::span<const float>> next(std::span<const int32_t> ids, bool fresh) override {
    if (fresh || sequence_ == nullptr) {
      auto sequence = executable_->new_sequence();
      RETURN_IF_ERROR(sequence);
      sequence_ = std::move(*sequence);
    }
    if (rests_) rest_until_done(*executable_);
    const int64_t begin = sequence_->length();
    RETURN_IF_ERROR(sequence_->reserve(begin + static_cast<int64_t>(ids.size())));
    std::vector<Row> rows;
    for (size_t i = 0; i < ids.size(); ++i) rows.push_back(text_row(0, begin + static_cast<int64_t>(i), ids[i], true));
    Sequence* const sequences[] = {sequence_.get()};
    tap_.clear();
    const auto outputs = executable_->run({sequences, rows}, CancelToken());
    RETURN_IF_ERROR(outputs);
    sequence_->commit(static_cast<int>(rows.size()));
    return outputs->logits;
  }

  const LayerTap* layers() const override { return tap_.layers().empty() ? nullptr : &tap_; }

 private:
  std::shared_ptr<Executable> executable_;
  bool rests_ = false;
  LayerTap tap_;
  std::unique_ptr<Sequence> sequence_;
};

class SavedLogits : public LogitsSource {
 public:
  explicit SavedLogits(SafetensorsFile file) : file_(std::move(file)) {}

  Result<void> check() {
    const SafeTensor* ids = file_.find("ids");
    const SafeTensor* logits = file_.find("logits");
    const auto path = file_.file().path().string();
    if (ids == nullptr || logits == nullptr || ids->type != ElementType::i64 || logits->type != ElementType::f32 ||
        ids->shape.size() != 1 || logits->shape.size() != 2 || ids->shape[0] != logits->shape[0])
      return error(Code::bad_format, "{}: not a file of --save-logits (ids I64 [n] and logits F32 [n, vocabulary])",
                   path);
    vocabulary_ = logits->shape[1];
    ids_.resize(static_cast<size_t>(ids->shape[0]));
    std::memcpy(ids_.data(), file_.bytes(*ids).data(), file_.bytes(*ids).size());
    bytes_ = file_.bytes(*logits);
    return {};
  }

  int64_t vocabulary() const override { return vocabulary_; }

  Result<std::span<const float>> next(std::span<const int32_t> ids, bool) override {
    if (at_ + ids.size() > ids_.size() || !std::equal(ids.begin(), ids.end(), ids_.begin() + static_cast<int64_t>(at_)))
      return error(Code::invalid_argument, "{}: holds the logits of other ids (they differ from number {} on, or end)",
                   file_.file().path().string(), at_);
    const auto row_bytes = static_cast<size_t>(vocabulary_) * sizeof(float);
    rows_.resize(ids.size() * static_cast<size_t>(vocabulary_));  // a copy: the file's bytes need not be aligned
    std::memcpy(rows_.data(), bytes_.data() + at_ * row_bytes, ids.size() * row_bytes);
    at_ += ids.size();
    return std::span<const float>(rows_);
  }

 private:
  SafetensorsFile file_;
  int64_t vocabulary_ = 0;
  std::vector<int64_t> ids_;
  std::span<const std::byte> bytes_;
  std::vector<float> rows_;
  size_t at_ = 0;
};

std::span<const float> row(std::span<const float> logits, size_t i, int64_t vocabulary) {
  return logits.subspan(i * static_cast<size_t>(vocabulary), static_cast<size_t>(vocabulary));
}

}  // namespace

std::unique_ptr<LogitsSource> executable_logits(std::shared_ptr<Executable> executable, bool rests) {
  return std::make_unique<ExecutableLogits>(std::move(executable), rests);
}

Result<std::unique_ptr<LogitsSource>> saved_logits(const std::string& path) {
  auto file = SafetensorsFile::open(path);
  RETURN_IF_ERROR(file);
  auto source = std::make_unique<SavedLogits>(std::move(*file));
  RETURN_IF_ERROR(source->check());
  return source;
}

Result<EvalSummary> run_eval(LogitsSource& source, LogitsSource* reference, const EvalRun& run) {
  const int64_t vocabulary = source.vocabulary();
  if (reference != nullptr && reference->vocabulary() != vocabulary)
    return error(Code::invalid_argument, "the logits to compare with have {} columns, the model {}",
                 reference->vocabulary(), vocabulary);
  for (size_t i = 0; i < run.ids.size(); ++i)
    if (run.ids[i] < 0 || run.ids[i] >= vocabulary)
      return error(Code::invalid_argument, "id number {} is {}, but the vocabulary has {}", i, run.ids[i], vocabulary);
  EvalMetrics metrics;
  LayerErrors layers;
  const auto window = static_cast<size_t>(run.window);
  for (size_t at = 0; at < run.ids.size();) {
    const size_t window_end = std::min((at / window + 1) * window, run.ids.size());
    const size_t count = std::min(static_cast<size_t>(run.rows_per_step), window_end - at);
    const auto ids = run.ids.subspan(at, count);
    const auto logits = source.next(ids, at % window == 0);
    RETURN_IF_ERROR(logits);
    if (run.sink) RETURN_IF_ERROR(run.sink(*logits));
    for (size_t i = 0; i < count && at + i + 1 < window_end; ++i)
      metrics.add_prediction(row(*logits, i, vocabulary), run.ids[at + i + 1]);
    if (reference != nullptr) {
      const auto others = reference->next(ids, at % window == 0);
      RETURN_IF_ERROR(others);
      for (size_t i = 0; i < count; ++i)
        metrics.add_comparison(row(*logits, i, vocabulary), row(*others, i, vocabulary));
      if (source.layers() != nullptr && reference->layers() != nullptr)
        RETURN_IF_ERROR(layers.add(*source.layers(), *reference->layers()));
    }
    at += count;
    if (run.progress) run.progress(static_cast<int64_t>(at));
  }
  EvalSummary summary = metrics.summary();
  summary.worst_layers = layers.worst(kWorstLayers);
  return summary;
}

}  // namespace onw::cli
