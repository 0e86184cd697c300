#include "targets/cpu/sequence.h"

#include <algorithm>

#include "base/half.h"
#include "kernels/attention/attention.h"
#include "targets/canonical_state.h"

namespace onw::cpu {
namespace {

std::vector<KvPages> share(const std::vector<KvPages>& states) {
  std::vector<KvPages> shared;
  for (const KvPages& s : states) shared.push_back(s.share());
  return shared;
}

class CpuCheckpoint final : public Checkpoint {
 public:
  CpuCheckpoint(const std::vector<KvPages>& from, const std::vector<RecurrentPages>& others, int64_t length)
      : states(share(from)), length_(length) {
    for (const RecurrentPages& r : others) {
      recurrent.push_back(r.snapshot());
      bytes_ += recurrent.back().bytes_held();
    }
    for (const KvPages& s :
         states) {  // a window's pages go when it moves on; of the rest only a page that is not full is copied
      if (s.state().window > 0)
        bytes_ += s.bytes_held();
      else if (length % kPagePositions != 0)
        bytes_ += s.page_bytes();
    }
  }
  int64_t length() const override { return length_; }
  int64_t bytes() const override { return bytes_; }
  const std::vector<KvPages> states;
  std::vector<RecurrentPages> recurrent;

 private:
  int64_t length_ = 0, bytes_ = 0;
};

// One head of one state, between its pages and the canonical arrays.
struct HeadArrays {
  std::vector<std::byte> k, v;
  std::vector<uint16_t> k_scale, v_scale;

  HeadArrays(const KvLayout& layout, int64_t positions) {
    const auto n = static_cast<size_t>(positions * layout.head_dim * layout.element_bytes());
    k.resize(n);
    v.resize(n);
    if (layout.format != KvFormat::int8) return;
    k_scale.resize(static_cast<size_t>(positions));
    v_scale.resize(static_cast<size_t>(positions));
  }
};

// The float behind element i of a canonical array.
float element(KvFormat format, std::span<const std::byte> from, size_t i, float scale) {
  if (format == KvFormat::int8) return static_cast<float>(static_cast<int8_t>(from[i])) * scale;
  if (format == KvFormat::f16) return half_to_float(reinterpret_cast<const uint16_t*>(from.data())[i]);
  return reinterpret_cast<const float*>(from.data())[i];
}

}  // namespace

CpuSequence::CpuSequence(std::shared_ptr<const SequenceForm> form) : form_(std::move(form)) {
  for (const StateDecl& s : form_->program.states) {
    if (is_recurrent(s))
      recurrent_.emplace_back(s, form_->pages);
    else
      states_.emplace_back(s, form_->kv, form_->pages);
  }
}

Result<void> CpuSequence::reserve(int64_t tokens) {
  if (tokens > form_->max_context)
    return error(Code::context_overflow, "{} tokens do not fit the context of {}", tokens, form_->max_context);
  for (KvPages& s : states_) RETURN_IF_ERROR(s.reserve(tokens));
  for (RecurrentPages& r : recurrent_) RETURN_IF_ERROR(r.reserve());
  return {};
}

Result<void> CpuSequence::prepare(int64_t rows) {
  settle();
  for (KvPages& s : states_) RETURN_IF_ERROR(s.prepare(length_, length_ + rows));
  for (RecurrentPages& r : recurrent_) RETURN_IF_ERROR(r.prepare(length_, rows));
  return {};
}

void CpuSequence::extend(int64_t rows) {
  for (RecurrentPages& r : recurrent_) r.extend(length_, rows);
  length_ += rows;
  last_step_rows_ = rows;
}

void CpuSequence::settle() {
  last_step_rows_ = 0;
  for (KvPages& s : states_)
    if (s.state().window > 0) s.drop_before(length_ + 1 - s.state().window - kWindowSlack);
}

void CpuSequence::commit(int rows_kept) {
  CHECK(rows_kept >= 0 && rows_kept <= last_step_rows_);
  const int64_t n = length_ - last_step_rows_ + rows_kept;
  for (RecurrentPages& r : recurrent_) {
    CHECK(r.restorable(n, length_) == n);  // a step that may be kept in part has few enough rows (max_partial_rows)
    r.go_back(n, length_);
  }
  length_ = n;
  settle();
}

int64_t CpuSequence::restorable(int64_t n) const {
  for (const RecurrentPages& r : recurrent_) n = r.restorable(n, length_);  // all are in the same chunks
  const bool windows = std::ranges::all_of(
      states_, [&](const KvPages& s) { return s.first_kept() <= first_canonical_position(s.state(), n); });
  return windows ? n : 0;
}

void CpuSequence::go_back(int64_t n) {
  for (RecurrentPages& r : recurrent_) r.go_back(n, length_);
  for (KvPages& s : states_) s.drop_from(n);
  length_ = n;
  last_step_rows_ = 0;
}

int64_t CpuSequence::truncate(int64_t n) {
  CHECK(n >= 0);
  go_back(restorable(std::min(n, length_)));
  return length_;
}

Result<CheckpointPtr> CpuSequence::checkpoint() {
  return std::make_shared<CpuCheckpoint>(states_, recurrent_, length_);
}

Result<void> CpuSequence::restore(const Checkpoint& checkpoint) {
  const auto* mine = dynamic_cast<const CpuCheckpoint*>(&checkpoint);
  if (mine == nullptr || mine->states.size() != states_.size() || mine->recurrent.size() != recurrent_.size())
    return error(Code::invalid_argument, "the checkpoint belongs to another target");
  states_ = share(mine->states);
  recurrent_ = mine->recurrent;
  length_ = mine->length();
  last_step_rows_ = 0;
  for (KvPages& s : states_) s.drop_from(length_);
  return {};
}

Result<std::unique_ptr<Sequence>> CpuSequence::fork(int64_t n) {
  if (n < 0 || n > length_)
    return error(Code::invalid_argument, "cannot fork at {}: the sequence has {} tokens", n, length_);
  if (restorable(n) != n)
    return error(Code::invalid_argument,
                 "cannot fork at {}: a window or a recurrent state has moved on; the next length below that can be "
                 "restored is {}",
                 n, restorable(n));
  auto copy = std::make_unique<CpuSequence>(form_);
  copy->states_ = share(states_);
  copy->recurrent_ = recurrent_;
  copy->length_ = length_;
  copy->go_back(n);
  return copy;
}

Result<void> CpuSequence::export_to(StateSink& sink) const {
  for (const RecurrentPages& r : recurrent_) RETURN_IF_ERROR(r.export_to(length_, sink));
  for (const KvPages& s : states_) {
    const KvLayout& layout = s.layout();
    const int64_t first = first_canonical_position(s.state(), length_), row = layout.head_dim * layout.element_bytes();
    for (int64_t h = 0; h < s.state().heads; ++h) {
      HeadArrays a(layout, length_ - first);
      for (int64_t p = first; p < length_; ++p) {
        const auto at = static_cast<size_t>(p - first);
        uint16_t k_scale = 0, v_scale = 0;
        load_position(layout, s.page(h, p / kPagePositions), p % kPagePositions,
                      a.k.data() + at * static_cast<size_t>(row), &k_scale, a.v.data() + at * static_cast<size_t>(row),
                      &v_scale);
        if (layout.format == KvFormat::int8) a.k_scale[at] = k_scale, a.v_scale[at] = v_scale;
      }
      RETURN_IF_ERROR(sink.put(state_blob_name(s.state(), "k", h), a.k));
      RETURN_IF_ERROR(sink.put(state_blob_name(s.state(), "v", h), a.v));
      if (layout.format != KvFormat::int8) continue;
      RETURN_IF_ERROR(sink.put(state_blob_name(s.state(), "k_scale", h), std::as_bytes(std::span(a.k_scale))));
      RETURN_IF_ERROR(sink.put(state_blob_name(s.state(), "v_scale", h), std::as_bytes(std::span(a.v_scale))));
    }
  }
  return {};
}

namespace {

// One head's canonical arrays into pages; through floats where the formats differ.
Result<void> import_head(KvPages& s, int64_t head, int64_t first, StateSource& source) {
  const KvLayout& layout = s.layout();
  const KvLayout theirs{source.kv_format(), layout.head_dim};
  const auto count = static_cast<size_t>(source.length() - first), d = static_cast<size_t>(layout.head_dim);
  const auto blob = [&](std::string_view part, size_t bytes) -> Result<std::span<const std::byte>> {
    const std::string name = state_blob_name(s.state(), part, head);
    auto b = source.get(name);
    if (b && b->size() != bytes)
      return error(Code::bad_format, "saved state: '{}' has {} bytes, {} expected", name, b->size(), bytes);
    return b;
  };
  const size_t bytes = count * d * static_cast<size_t>(theirs.element_bytes());
  const size_t scale_bytes = theirs.format == KvFormat::int8 ? 2 * count : 0;
  const auto k = blob("k", bytes);
  RETURN_IF_ERROR(k);
  const auto v = blob("v", bytes);
  RETURN_IF_ERROR(v);
  std::span<const std::byte> scales[2];
  for (int i = 0; scale_bytes > 0 && i < 2; ++i) {
    const auto part = blob(i == 0 ? "k_scale" : "v_scale", scale_bytes);
    RETURN_IF_ERROR(part);
    scales[i] = *part;
  }
  const auto scale = [&](int i, size_t p) {
    uint16_t half = 0;
    if (scale_bytes > 0)
      std::copy_n(scales[i].begin() + static_cast<ptrdiff_t>(2 * p), 2, reinterpret_cast<std::byte*>(&half));
    return half;
  };
  std::vector<float> kf(d), vf(d);
  for (size_t i = 0; i < count; ++i) {
    const int64_t position = first + static_cast<int64_t>(i);
    std::byte* page = s.page(head, position / kPagePositions);
    if (theirs.format == layout.format) {
      const size_t at = i * d * static_cast<size_t>(layout.element_bytes());
      store_position(layout, page, position % kPagePositions, k->data() + at, scale(0, i), v->data() + at, scale(1, i));
      continue;
    }
    for (size_t e = 0; e < d; ++e) {
      kf[e] = element(theirs.format, *k, i * d + e, half_to_float(scale(0, i)));
      vf[e] = element(theirs.format, *v, i * d + e, half_to_float(scale(1, i)));
    }
    attention_ops(Isa::generic).kv_write(layout, page, position % kPagePositions, kf.data(), vf.data());
  }
  return {};
}

}  // namespace

Result<void> CpuSequence::import_from(StateSource& source) {
  if (source.length() < 0 || source.length() > form_->max_context)
    return error(Code::context_overflow, "the saved state has {} tokens, the context {}", source.length(),
                 form_->max_context);
  std::vector<KvPages> fresh;
  std::vector<RecurrentPages> recurrent;
  for (const StateDecl& decl : form_->program.states) {
    if (is_recurrent(decl)) {
      RETURN_IF_ERROR(recurrent.emplace_back(decl, form_->pages).import_from(source));
      continue;
    }
    KvPages& s = fresh.emplace_back(decl, form_->kv, form_->pages);
    const int64_t first = first_canonical_position(decl, source.length());
    s.begin_at(first);
    RETURN_IF_ERROR(s.prepare(first, source.length()));
    for (int64_t h = 0; h < decl.heads; ++h) RETURN_IF_ERROR(import_head(s, h, first, source));
  }
  states_ = std::move(fresh);
  recurrent_ = std::move(recurrent);
  length_ = source.length();
  last_step_rows_ = 0;
  return {};
}

}  // namespace onw::cpu
