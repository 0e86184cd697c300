#include "targets/cpu/recurrent_pages.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"

namespace onw::cpu {
namespace {

// A page is never empty: a kernel of one has an edge of no rows.
int64_t bytes_of(int64_t floats) { return std::max<int64_t>(64, round_up(floats * int64_t{sizeof(float)}, 64)); }

}  // namespace

RecurrentPages::RecurrentPages(const StateDecl& state, std::shared_ptr<PagePool> pool)
    : state_(&state), form_(recurrent_form(state)), pool_(std::move(pool)) {}

int64_t RecurrentPages::bytes_held() const {
  int64_t bytes = 0;
  for (const Side* side : {&now_, &other_}) {
    bytes += side->edge == nullptr ? 0 : bytes_of(form_.edge_floats);
    bytes += side->log == nullptr ? 0 : bytes_of(kDeltaChunk * form_.row_floats);
  }
  return bytes;
}

// `page` to be written by this state alone: made of zeros where there is none, a copy where others hold it too (without
// its content unless `keep` says so).
Result<void> RecurrentPages::make(Page& page, int64_t floats, bool keep) {
  if (page != nullptr && page.use_count() == 1) return {};
  const int64_t bytes = bytes_of(floats);
  auto fresh = pool_->allocate(bytes);
  RETURN_IF_ERROR(fresh);
  if (page == nullptr)
    std::memset(fresh->get(), 0, static_cast<size_t>(bytes));
  else if (keep)
    std::memcpy(fresh->get(), page.get(), static_cast<size_t>(bytes));
  page = std::move(*fresh);
  return {};
}

Result<void> RecurrentPages::reserve() {
  const int64_t log = kDeltaChunk * form_.row_floats;
  for (Side* side : {&now_, &other_}) {
    if (side->edge == nullptr) RETURN_IF_ERROR(make(side->edge, form_.edge_floats, false));
    if (side->log == nullptr) RETURN_IF_ERROR(make(side->log, log, false));
  }
  return {};
}

Result<void> RecurrentPages::prepare(int64_t length, int64_t rows) {
  if (now_.edge == nullptr) RETURN_IF_ERROR(make(now_.edge, form_.edge_floats, false));
  RETURN_IF_ERROR(make(now_.log, kDeltaChunk * form_.row_floats, true));
  if (chunk_begin(length + rows) == chunk_begin(length)) return {};
  RETURN_IF_ERROR(make(other_.edge, form_.edge_floats, false));
  RETURN_IF_ERROR(make(other_.log, kDeltaChunk * form_.row_floats, false));
  before_ = -1;
  return {};
}

void RecurrentPages::extend(int64_t length, int64_t rows) {
  if (chunk_begin(length + rows) == chunk_begin(length)) return;
  std::swap(now_, other_);
  before_ = chunk_begin(length);
}

int64_t RecurrentPages::restorable(int64_t n, int64_t length) const {
  if (n >= chunk_begin(length)) return n;
  if (before_ < 0 || n < before_) return 0;
  return std::min<int64_t>(n, before_ + kDeltaChunk - 1);
}

void RecurrentPages::go_back(int64_t n, int64_t length) {
  if (n == 0) {
    now_ = other_ = {};
    before_ = -1;
  } else if (n < chunk_begin(length)) {
    CHECK(before_ >= 0 && n >= before_ && n < before_ + kDeltaChunk);
    std::swap(now_, other_);
    before_ = -1;
  }
}

RecurrentPages RecurrentPages::snapshot() const {
  RecurrentPages copy = *this;
  copy.other_ = {};
  copy.before_ = -1;
  return copy;
}

Result<void> RecurrentPages::export_to(int64_t length, StateSink& sink) const {
  // Before the first step there are no pages.
  const std::vector<float> nothing(now_.edge == nullptr ? static_cast<size_t>(form_.edge_floats) : 0);
  const float* edge = now_.edge == nullptr ? nothing.data() : floats(now_.edge);
  return export_recurrent(*state_, edge, floats(now_.log), length - chunk_begin(length), sink);
}

Result<void> RecurrentPages::import_from(StateSource& source) {
  RETURN_IF_ERROR(reserve());
  return import_recurrent(*state_, source, floats(now_.edge), floats(now_.log));
}

int64_t recurrent_bytes(const StateDecl& state) {
  const RecurrentForm form = recurrent_form(state);
  return 2 * (bytes_of(form.edge_floats) + bytes_of(kDeltaChunk * form.row_floats));
}

}  // namespace onw::cpu
