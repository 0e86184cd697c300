#include "targets/openvino/kv_chunks.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/checked.h"
#include "base/half.h"
#include "kernels/scalar.h"
#include "targets/canonical_state.h"

namespace onw::openvino {
namespace {

constexpr int64_t kLargest = 16;  // times base

// x in the cache's format; returns the scale (INT8 alone has one).
uint16_t store(KvFormat format, std::span<const float> x, std::byte* to, int64_t stride) {
  if (format == KvFormat::int8) {
    thread_local std::vector<int8_t> codes;
    codes.resize(x.size());
    const uint16_t scale = scalar::quantise_kv(x, codes.data());
    for (size_t i = 0; i < codes.size(); ++i) std::memcpy(to + static_cast<int64_t>(i) * stride, &codes[i], 1);
    return scale;
  }
  for (size_t i = 0; i < x.size(); ++i) {
    std::byte* at = to + static_cast<int64_t>(i) * stride;
    if (format == KvFormat::f32) {
      std::memcpy(at, &x[i], 4);
      continue;
    }
    const uint16_t half = float_to_half(x[i]);
    std::memcpy(at, &half, 2);
  }
  return 0;
}

std::atomic<uint64_t>& made_chunks() {
  static std::atomic<uint64_t> made = 0;
  return made;
}

}  // namespace

// 1, 1, 2, 4, 8, 16, 16, ...
ChunkPlace chunk_at(int64_t index, int64_t base) {
  if (index == 0) return {0, 0, base};
  if (index <= 5) return {index, base << (index - 1), base << (index - 1)};
  return {index, kLargest * base * (index - 4), kLargest * base};
}

ChunkPlace chunk_of(int64_t position, int64_t base) {
  int64_t index = 0;
  if (position >= 2 * kLargest * base)
    index = position / (kLargest * base) + 4;
  else
    while (chunk_at(index, base).begin + chunk_at(index, base).length <= position) ++index;
  return chunk_at(index, base);
}

int64_t element_bytes(KvFormat format) { return format == KvFormat::int8 ? 1 : format == KvFormat::f16 ? 2 : 4; }

int64_t chunk_bytes(const StateDecl& s, KvFormat format, int64_t length) {
  return s.heads * length * ((s.head_dim + s.value_dim) * element_bytes(format) + (format == KvFormat::int8 ? 4 : 0));
}

Result<std::shared_ptr<KvChunk>> KvChunk::create(const StateDecl& s, KvFormat format, int64_t length,
                                                 const HostMemory& memory) {
  constexpr int64_t kAlignment = 64;
  const auto chunk = std::make_shared<KvChunk>();
  const auto part = [&](int64_t bytes) {
    const int64_t at = chunk->bytes_;
    chunk->bytes_ = round_up(at + bytes, kAlignment);
    return at;
  };
  part(s.heads * length * s.head_dim * element_bytes(format));
  chunk->v_at_ = part(s.heads * length * s.value_dim * element_bytes(format));
  if (format == KvFormat::int8) {
    chunk->k_scale_at_ = part(2 * s.heads * length);
    chunk->v_scale_at_ = part(2 * s.heads * length);
  }
  auto bytes = memory.allocate(chunk->bytes_);
  RETURN_IF_ERROR(bytes);
  chunk->memory_ = std::move(*bytes);
  chunk->id_ = ++made_chunks();
  return chunk;
}

Result<std::shared_ptr<KvChunk>> KvChunk::copy(const HostMemory& memory) const {
  const auto chunk = std::make_shared<KvChunk>(*this);
  auto bytes = memory.allocate(bytes_);
  RETURN_IF_ERROR(bytes);
  chunk->memory_ = std::move(*bytes);
  std::memcpy(chunk->memory_.get(), memory_.get(), static_cast<size_t>(bytes_));
  chunk->id_ = ++made_chunks();
  return chunk;
}

ChunkForm chunk_form(const Program& program, ChunkForm form) {
  for (const StateDecl& s : program.states) (is_recurrent(s) ? form.recurrent : form.states).push_back(s);
  return form;
}

ChunkForm::Cell ChunkForm::cell(const StateDecl& state, int64_t position) const {
  if (const int64_t length = ring(state); length > 0) return {{0, 0, length}, position % length};
  const ChunkPlace place = chunk_of(position, base);
  return {place, position - place.begin};
}

class ChunkCheckpoint final : public Checkpoint {
 public:
  ChunkCheckpoint(std::vector<ChunkSequence::State> states, std::vector<cpu::RecurrentPages> recurrent, int64_t length,
                  int64_t bytes)
      : states(std::move(states)), recurrent(std::move(recurrent)), length_(length), bytes_(bytes) {}
  int64_t length() const override { return length_; }
  int64_t bytes() const override { return bytes_; }
  const std::vector<ChunkSequence::State> states;
  const std::vector<cpu::RecurrentPages> recurrent;

 private:
  int64_t length_ = 0, bytes_ = 0;
};

ChunkSequence::ChunkSequence(std::shared_ptr<const ChunkForm> form)
    : form_(std::move(form)), states_(form_->states.size()) {
  for (const StateDecl& s : form_->recurrent) recurrent_.emplace_back(s, form_->pages);
}

Result<void> ChunkSequence::reserve(int64_t tokens) {
  if (tokens > form_->max_context)
    return error(Code::context_overflow, "{} tokens do not fit the context of {}", tokens, form_->max_context);
  for (cpu::RecurrentPages& r : recurrent_) RETURN_IF_ERROR(r.reserve());
  return {};
}

Result<void> ChunkSequence::make_room(size_t state, int64_t index, int64_t length) {
  auto& chunks = states_[state].chunks;
  const bool there = index < static_cast<int64_t>(chunks.size());
  if (there && chunks[static_cast<size_t>(index)].use_count() == 1) return {};
  auto chunk = there ? chunks[static_cast<size_t>(index)]->copy(form_->memory)
                     : KvChunk::create(form_->states[state], form_->kv, length, form_->memory);
  RETURN_IF_ERROR(chunk);
  if (there)
    chunks[static_cast<size_t>(index)] = std::move(*chunk);
  else
    chunks.push_back(std::move(*chunk));
  return {};
}

Result<void> ChunkSequence::prepare(int64_t rows) {
  last_step_rows_ = 0;
  if (rows == 0) return {};
  for (cpu::RecurrentPages& r : recurrent_) RETURN_IF_ERROR(r.prepare(length_, rows));
  return make_rooms(rows);
}

Result<void> ChunkSequence::make_rooms(int64_t rows) {
  if (rows == 0) return {};
  for (size_t s = 0; s < states_.size(); ++s) {
    const ChunkPlace first = form_->cell(form_->states[s], length_).chunk;
    const ChunkPlace last = form_->cell(form_->states[s], length_ + rows - 1).chunk;
    RETURN_IF_ERROR(make_room(s, first.index, first.length));
    for (int64_t i = first.index + 1; i <= last.index; ++i)
      RETURN_IF_ERROR(make_room(s, i, chunk_at(i, form_->base).length));
  }
  return {};
}

void ChunkSequence::write(size_t state, int64_t position, const float* k, const float* v) {
  const StateDecl& s = form_->states[state];
  const auto [place, at] = form_->cell(s, position);
  const KvChunk& c = chunk(state, place.index);
  const int64_t bytes = element_bytes(form_->kv);
  for (int64_t h = 0; h < s.heads; ++h) {
    const int64_t row = h * place.length + at;
    const uint16_t ks = store(form_->kv, {k + h * s.head_dim, static_cast<size_t>(s.head_dim)},
                              c.k() + row * s.head_dim * bytes, bytes);
    const uint16_t vs = store(form_->kv, {v + h * s.value_dim, static_cast<size_t>(s.value_dim)},
                              c.v() + (h * s.value_dim * place.length + at) * bytes, place.length * bytes);
    if (form_->kv == KvFormat::int8) c.k_scale()[row] = ks, c.v_scale()[row] = vs;
  }
  if (const int64_t ring = form_->ring(s); ring > 0)
    states_[state].first_kept = std::max(states_[state].first_kept, position + 1 - ring);
}

void ChunkSequence::extend(int64_t rows) {
  for (cpu::RecurrentPages& r : recurrent_) r.extend(length_, rows);
  held_.settle();
  length_ += rows;
  last_step_rows_ = rows;
}

void ChunkSequence::cut(int64_t n) {
  length_ = n;
  held_.cut(n);
  last_step_rows_ = 0;
  for (size_t s = 0; s < states_.size(); ++s) {
    const int64_t kept = n == 0 ? 0 : form_->cell(form_->states[s], n - 1).chunk.index + 1;
    auto& chunks = states_[s].chunks;
    if (static_cast<int64_t>(chunks.size()) > kept) chunks.resize(static_cast<size_t>(kept));
  }
}

void ChunkSequence::go_back(int64_t n) {
  for (cpu::RecurrentPages& r : recurrent_) r.go_back(n, length_);
  cut(n);
}

int64_t ChunkSequence::restorable(int64_t n) const {
  for (const cpu::RecurrentPages& r : recurrent_) n = r.restorable(n, length_);  // all are in the same chunks
  for (size_t s = 0; s < states_.size(); ++s)
    if (states_[s].first_kept > first_canonical_position(form_->states[s], n)) return 0;
  return n;
}

void ChunkSequence::commit(int rows_kept) {
  CHECK(rows_kept >= 0 && rows_kept <= last_step_rows_);
  const int64_t n = length_ - last_step_rows_ + rows_kept;
  for (const cpu::RecurrentPages& r : recurrent_) CHECK(r.restorable(n, length_) == n);  // max_partial_rows sees to it
  go_back(n);
}

int64_t ChunkSequence::truncate(int64_t n) {
  CHECK(n >= 0);
  n = restorable(std::min(n, length_));
  if (n == 0)
    for (State& s : states_) s.first_kept = 0;
  go_back(n);
  return n;
}

// What a chunk that is written to later keeps alive: the last of each state.
Result<CheckpointPtr> ChunkSequence::checkpoint() {
  int64_t bytes = 0;
  if (length_ > 0)
    for (const StateDecl& s : form_->states)
      bytes += chunk_bytes(s, form_->kv, form_->cell(s, length_ - 1).chunk.length);
  std::vector<cpu::RecurrentPages> recurrent;
  for (const cpu::RecurrentPages& r : recurrent_) bytes += recurrent.emplace_back(r.snapshot()).bytes_held();
  return std::make_shared<ChunkCheckpoint>(states_, std::move(recurrent), length_, bytes);
}

Result<void> ChunkSequence::restore(const Checkpoint& checkpoint) {
  const auto* mine = dynamic_cast<const ChunkCheckpoint*>(&checkpoint);
  if (mine == nullptr || mine->states.size() != states_.size() || mine->recurrent.size() != recurrent_.size())
    return error(Code::invalid_argument, "the checkpoint belongs to another target");
  states_ = mine->states;
  recurrent_ = mine->recurrent;
  held_ = {};
  cut(mine->length());
  return {};
}

Result<std::unique_ptr<Sequence>> ChunkSequence::fork(int64_t n) {
  if (n < 0 || n > length_)
    return error(Code::invalid_argument, "cannot fork at {}: the sequence has {} tokens", n, length_);
  if (restorable(n) != n)
    return error(Code::invalid_argument,
                 "cannot fork at {}: a window or a recurrent state has moved on; {} can be restored", n, length_);
  auto copy = std::make_unique<ChunkSequence>(form_);
  copy->states_ = states_;
  copy->recurrent_ = recurrent_;
  copy->length_ = length_;
  copy->go_back(n);
  return copy;
}

Result<void> ChunkSequence::export_to(StateSink& sink) const {
  for (const cpu::RecurrentPages& r : recurrent_) RETURN_IF_ERROR(r.export_to(length_, sink));
  const int64_t bytes = element_bytes(form_->kv);
  for (size_t i = 0; i < states_.size(); ++i) {
    const StateDecl& s = form_->states[i];
    const int64_t first = first_canonical_position(s, length_);
    for (int64_t h = 0; h < s.heads; ++h) {
      const auto count = static_cast<size_t>(length_ - first);
      std::vector<std::byte> k(count * static_cast<size_t>(s.head_dim * bytes)),
          v(count * static_cast<size_t>(s.value_dim * bytes));
      std::vector<uint16_t> k_scale(count), v_scale(count);
      for (int64_t p = first; p < length_; ++p) {
        const auto [place, at] = form_->cell(s, p);
        const KvChunk& c = chunk(i, place.index);
        const int64_t row = h * place.length + at;
        std::copy_n(c.k() + row * s.head_dim * bytes, s.head_dim * bytes, k.data() + (p - first) * s.head_dim * bytes);
        for (int64_t e = 0; e < s.value_dim; ++e)
          std::copy_n(c.v() + ((h * s.value_dim + e) * place.length + at) * bytes, bytes,
                      v.data() + ((p - first) * s.value_dim + e) * bytes);
        if (form_->kv != KvFormat::int8) continue;
        k_scale[static_cast<size_t>(p - first)] = c.k_scale()[row];
        v_scale[static_cast<size_t>(p - first)] = c.v_scale()[row];
      }
      RETURN_IF_ERROR(sink.put(state_blob_name(s, "k", h), k));
      RETURN_IF_ERROR(sink.put(state_blob_name(s, "v", h), v));
      if (form_->kv != KvFormat::int8) continue;
      RETURN_IF_ERROR(sink.put(state_blob_name(s, "k_scale", h), std::as_bytes(std::span(k_scale))));
      RETURN_IF_ERROR(sink.put(state_blob_name(s, "v_scale", h), std::as_bytes(std::span(v_scale))));
    }
  }
  return {};
}

namespace {

// One head of a saved state as numbers, whatever format it was kept in.
Result<std::vector<float>> read_head(StateSource& source, const StateDecl& s, const char* part, int64_t head,
                                     int64_t count, int64_t width) {
  const KvFormat format = source.kv_format();
  const std::string name = state_blob_name(s, part, head);
  const auto blob = source.get(name);
  RETURN_IF_ERROR(blob);
  const auto values = static_cast<size_t>(count * width);
  if (blob->size() != values * static_cast<size_t>(element_bytes(format)))
    return error(Code::bad_format, "saved state: '{}' has {} bytes, {} expected", name, blob->size(),
                 values * static_cast<size_t>(element_bytes(format)));
  std::vector<float> out(values);
  if (format == KvFormat::f32) {
    std::memcpy(out.data(), blob->data(), blob->size());
    return out;
  }
  if (format == KvFormat::f16) {
    for (size_t i = 0; i < values; ++i) {
      uint16_t half = 0;
      std::memcpy(&half, blob->data() + 2 * i, 2);
      out[i] = half_to_float(half);
    }
    return out;
  }
  const auto scales = source.get(state_blob_name(s, std::string(part) + "_scale", head));
  RETURN_IF_ERROR(scales);
  if (scales->size() != static_cast<size_t>(2 * count))
    return error(Code::bad_format, "saved state: the scales of '{}' have {} bytes, {} expected", name, scales->size(),
                 2 * count);
  for (size_t i = 0; i < values; ++i) {
    uint16_t half = 0;
    std::memcpy(&half, scales->data() + i / static_cast<size_t>(width) * 2, 2);
    out[i] = static_cast<float>(static_cast<int8_t>((*blob)[i])) * half_to_float(half);
  }
  return out;
}

}  // namespace

// Through numbers: INT8 codes times their scale give the same codes and scale again.
Result<void> ChunkSequence::import_from(StateSource& source) {
  if (source.length() < 0 || source.length() > form_->max_context)
    return error(Code::context_overflow, "the saved state has {} tokens, the context {}", source.length(),
                 form_->max_context);
  ChunkSequence fresh(form_);
  for (cpu::RecurrentPages& r : fresh.recurrent_) RETURN_IF_ERROR(r.import_from(source));
  RETURN_IF_ERROR(fresh.make_rooms(source.length()));
  for (size_t i = 0; i < states_.size(); ++i) {
    const StateDecl& s = form_->states[i];
    const int64_t first = first_canonical_position(s, source.length()), count = source.length() - first;
    fresh.states_[i].first_kept = first;
    std::vector<float> k(static_cast<size_t>(count * s.heads * s.head_dim)),
        v(static_cast<size_t>(count * s.heads * s.value_dim));
    for (int64_t h = 0; h < s.heads; ++h) {
      const auto one_k = read_head(source, s, "k", h, count, s.head_dim);
      RETURN_IF_ERROR(one_k);
      const auto one_v = read_head(source, s, "v", h, count, s.value_dim);
      RETURN_IF_ERROR(one_v);
      for (int64_t p = 0; p < count; ++p) {
        std::copy_n(one_k->data() + p * s.head_dim, s.head_dim, k.data() + (p * s.heads + h) * s.head_dim);
        std::copy_n(one_v->data() + p * s.value_dim, s.value_dim, v.data() + (p * s.heads + h) * s.value_dim);
      }
    }
    for (int64_t p = 0; p < count; ++p)
      fresh.write(i, first + p, k.data() + p * s.heads * s.head_dim, v.data() + p * s.heads * s.value_dim);
  }
  states_ = std::move(fresh.states_);
  recurrent_ = std::move(fresh.recurrent_);
  held_ = {};
  length_ = source.length();
  last_step_rows_ = 0;
  return {};
}

}  // namespace onw::openvino
