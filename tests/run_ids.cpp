#include "tests/run_ids.h"

#include <algorithm>

namespace onw::testing {

Result<std::vector<float>> logits_in_segments(Executable& target, std::span<const int32_t> ids,
                                              std::span<const int64_t> segments) {
  auto sequence = target.new_sequence();
  RETURN_IF_ERROR(sequence);
  const auto tokens = static_cast<int64_t>(ids.size());
  RETURN_IF_ERROR((*sequence)->reserve(tokens));
  Sequence* const sequences[] = {sequence->get()};
  const CancelToken never;
  std::vector<float> logits;
  for (int64_t begin = 0, turn = 0; begin < tokens; ++turn) {
    const int64_t length = std::min({segments[static_cast<size_t>(turn) % segments.size()], tokens - begin,
                                     static_cast<int64_t>(target.info().max_step_rows)});
    std::vector<Row> rows;
    for (int64_t i = begin; i < begin + length; ++i)
      rows.push_back(text_row(0, i, ids[static_cast<size_t>(i)], /*wants_logits=*/true));
    const auto outputs = target.run({sequences, rows}, never);
    RETURN_IF_ERROR(outputs);
    logits.insert(logits.end(), outputs->logits.begin(), outputs->logits.end());
    (*sequence)->commit(static_cast<int>(length));
    begin += length;
  }
  return logits;
}

}  // namespace onw::testing
