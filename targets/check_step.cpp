#include "targets/check_step.h"

#include <algorithm>

namespace onw {
namespace {

Result<void> check_content(const Row& row, size_t at, const ExecutableInfo& info) {
  if (!row.embedding.empty() && static_cast<int64_t>(row.embedding.size()) != info.hidden)
    return error(Code::invalid_argument, "row {}: its embedding has {} values, the model's width is {}", at,
                 row.embedding.size(), info.hidden);
  if (row.embedding.empty() && (row.token < 0 || row.token >= info.vocabulary))
    return error(Code::invalid_argument, "row {}: token {} is outside the vocabulary of {}", at, row.token,
                 info.vocabulary);
  if (const int64_t wanted = info.carries ? info.hidden : 0; static_cast<int64_t>(row.carried.size()) != wanted)
    return error(Code::invalid_argument, "row {}: carries {} values, this model takes {}", at, row.carried.size(),
                 wanted);
  if (row.index >= info.max_context)
    return error(Code::context_overflow, "row {}: index {} is beyond the context of {} tokens", at, row.index,
                 info.max_context);
  return {};
}

Result<void> check_sequences(const Step& step, bool mixes) {
  for (size_t i = 0; i < step.sequences.size(); ++i) {
    if (step.sequences[i] == nullptr) return error(Code::invalid_argument, "sequence {} of the step is null", i);
    for (size_t j = 0; j < i; ++j)
      if (step.sequences[i] == step.sequences[j])
        return error(Code::invalid_argument, "sequences {} and {} of the step are the same", j, i);
  }
  if (!mixes && step.sequences.size() > 1)
    return error(Code::invalid_argument, "the step has {} sequences, this target takes one", step.sequences.size());
  return {};
}

}  // namespace

Result<void> check_step(const Step& step, const ExecutableInfo& info, bool mixes) {
  if (step.rows.empty()) return error(Code::invalid_argument, "the step has no rows");
  if (static_cast<int64_t>(step.rows.size()) > info.max_step_rows)
    return error(Code::invalid_argument, "the step has {} rows, this target takes at most {}", step.rows.size(),
                 info.max_step_rows);
  RETURN_IF_ERROR(check_sequences(step, mixes));
  if (step.short_head && info.short_vocabulary == 0)
    return error(Code::invalid_argument, "the step asks for a short head, this model has none");
  size_t begun = 0;  // sequences seen; no list, because targets allocate nothing in a step
  for (size_t at = 0; at < step.rows.size(); ++at) {
    const Row& row = step.rows[at];
    const auto sequence = static_cast<size_t>(row.sequence);
    if (row.sequence < 0 || sequence >= step.sequences.size())
      return error(Code::invalid_argument, "row {}: sequence {} is not one of the step's {}", at, row.sequence,
                   step.sequences.size());
    const bool goes_on = at > 0 && step.rows[at - 1].sequence == row.sequence;
    if (!goes_on) {
      const auto same = [&row](const Row& other) { return other.sequence == row.sequence; };
      if (std::ranges::any_of(step.rows.first(at), same))
        return error(Code::invalid_argument, "row {}: the rows of sequence {} are not adjacent", at, row.sequence);
      ++begun;
    }
    const int64_t expected = goes_on ? step.rows[at - 1].index + 1 : step.sequences[sequence]->length();
    if (row.index != expected)
      return error(Code::invalid_argument, "row {}: index {} where sequence {} continues at {}", at, row.index,
                   row.sequence, expected);
    RETURN_IF_ERROR(check_content(row, at, info));
  }
  if (begun != step.sequences.size())
    return error(Code::invalid_argument, "the step names {} sequences, only {} have rows", step.sequences.size(),
                 begun);
  return {};
}

}  // namespace onw
