#include "cli/bench_conversations.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace onw::cli {
namespace {

// A state in memory, on its way from one sequence to another.
class StateCopy final : public StateSink, public StateSource {
 public:
  StateCopy(int64_t length, KvFormat kv) : length_(length), kv_(kv) {}

  Result<void> put(std::string_view name, std::span<const std::byte> bytes) override {
    blobs_[std::string(name)].assign(bytes.begin(), bytes.end());
    return {};
  }
  int64_t length() const override { return length_; }
  KvFormat kv_format() const override { return kv_; }
  Result<std::span<const std::byte>> get(std::string_view name) override {
    const auto found = blobs_.find(std::string(name));
    if (found == blobs_.end()) return error(Code::internal, "the copied state has no '{}'", name);
    return std::span<const std::byte>(found->second);
  }

 private:
  int64_t length_;
  KvFormat kv_;
  std::map<std::string, std::vector<std::byte>> blobs_;
};

// One step of `rows_each` rows for every sequence.
Result<void> run_step(Executable& executable, std::span<Sequence* const> sequences, std::vector<Row>& rows,
                      int64_t rows_each, bool last_logits, const std::function<int32_t()>& draw) {
  rows.clear();
  for (size_t s = 0; s < sequences.size(); ++s)
    for (int64_t i = 0; i < rows_each; ++i)
      rows.push_back(
          text_row(static_cast<int>(s), sequences[s]->length() + i, draw(), last_logits && i + 1 == rows_each));
  const auto outputs = executable.run({sequences, rows}, CancelToken());
  RETURN_IF_ERROR(outputs);
  for (Sequence* sequence : sequences) sequence->commit(static_cast<int>(rows_each));
  return {};
}

}  // namespace

void Batch::add(std::unique_ptr<Sequence> sequence) {
  pointers_.push_back(sequence.get());
  sequences_.push_back(std::move(sequence));
}

Result<void> Batch::feed(int64_t tokens) {
  const int64_t most = std::max<int64_t>(executable_.info().max_step_rows / static_cast<int64_t>(pointers_.size()), 1);
  while (tokens > 0) {
    const int64_t count = std::min(tokens, most);
    RETURN_IF_ERROR(step(count, count == tokens));
    tokens -= count;
  }
  return {};
}

Result<void> Batch::step(int64_t rows_each, bool last_logits) {
  return run_step(executable_, pointers_, rows_, rows_each, last_logits, [this] { return draw_(drawn_++); });
}

Result<void> Conversations::fill(int64_t depth) {
  if (filled_ == nullptr || filled_->length() > depth) {
    auto sequence = executable_.new_sequence();
    RETURN_IF_ERROR(sequence);
    filled_ = std::move(*sequence);
  }
  RETURN_IF_ERROR(filled_->reserve(depth));
  Sequence* const one[] = {filled_.get()};
  std::vector<Row> rows;
  while (filled_->length() < depth) {
    const int64_t count = std::min<int64_t>(depth - filled_->length(), executable_.info().max_step_rows);
    int64_t at = filled_->length();
    RETURN_IF_ERROR(run_step(executable_, one, rows, count, false, [&] { return draw_(at++); }));
  }
  return {};
}

Result<Batch> Conversations::at(int64_t depth, int count, int64_t tokens) {
  RETURN_IF_ERROR(fill(depth));
  Batch batch(executable_, draw_);
  StateCopy copy(depth, executable_.info().kv);
  if (count > 1 && depth > 0) RETURN_IF_ERROR(filled_->export_to(copy));
  for (int i = 0; i < count; ++i) {
    auto sequence = i == 0 ? filled_->fork(depth) : executable_.new_sequence();
    RETURN_IF_ERROR(sequence);
    if (i > 0 && depth > 0) RETURN_IF_ERROR((*sequence)->import_from(copy));
    RETURN_IF_ERROR((*sequence)->reserve(tokens));
    batch.add(std::move(*sequence));
  }
  return batch;
}

}  // namespace onw::cli
