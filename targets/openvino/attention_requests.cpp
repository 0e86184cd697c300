#include "targets/openvino/attention_requests.h"

#include <algorithm>
#include <chrono>

namespace onw::openvino {

Result<void> AttentionRequests::compile(const AttentionShape& shape) {
  if (compiled_.contains(shape)) return {};
  auto compiled = compile_(shape);
  RETURN_IF_ERROR(compiled);
  ++counts_.compiled;
  compiled_.emplace(shape, std::move(*compiled));
  const int64_t rows = shape.heads * shape.rows;
  auto memory = memory_.allocate(rows * (2 + shape.value_dim) * 4);
  RETURN_IF_ERROR(memory);
  Outputs& out = outputs_[shape];
  out.memory = std::move(*memory);
  out.m = reinterpret_cast<float*>(out.memory.get());
  out.l = out.m + rows;
  out.o = out.l + rows;
  return {};
}

Result<void> AttentionRequests::set(Request& request, const char* name, DType dtype, Shape shape, const void* memory) {
  const auto tensor = runtime_->tensor(dtype, shape, const_cast<void*>(memory));
  RETURN_IF_ERROR(tensor);
  return request.set(name, *tensor);
}

// Each run's outputs are folded before the next: all requests of a shape share them.
Result<void> AttentionRequests::bind_outputs(Bound& b) {
  const AttentionShape& s = b.shape;
  const Outputs& out = outputs_.at(s);
  RETURN_IF_ERROR(set(b.request, "m", DType::f32, {s.heads, s.rows, 1}, out.m));
  RETURN_IF_ERROR(set(b.request, "l", DType::f32, {s.heads, s.rows, 1}, out.l));
  return set(b.request, "o", DType::f32, {s.heads, s.rows, s.value_dim}, out.o);
}

Result<void> AttentionRequests::bind_chunk(Bound& b, const KvChunk& chunk) {
  const AttentionShape& s = b.shape;
  const DType element = s.kv == KvFormat::int8 ? DType::i8 : s.kv == KvFormat::f16 ? DType::f16 : DType::f32;
  RETURN_IF_ERROR(set(b.request, "k", element, {s.kv_heads, s.length, s.head_dim}, chunk.k()));
  RETURN_IF_ERROR(set(b.request, "v", element, {s.kv_heads, s.value_dim, s.length}, chunk.v()));
  if (s.kv == KvFormat::int8) {
    RETURN_IF_ERROR(set(b.request, "k_scale", DType::f16, {s.kv_heads, 1, s.length}, chunk.k_scale()));
    RETURN_IF_ERROR(set(b.request, "v_scale", DType::f16, {s.kv_heads, 1, s.length}, chunk.v_scale()));
  }
  b.chunk = chunk.id();
  return {};
}

// A request of the shape that is bound to nothing that is used: a new one, or the one whose last use is longest ago,
// of the shape where there is one, for it need not be made anew.
Result<AttentionRequests::Bound> AttentionRequests::take(const AttentionShape& shape) {
  if (held() >= most_) {
    auto last = std::find_if(uses_.rbegin(), uses_.rend(), [&](const Bound& b) { return b.shape == shape; });
    const bool fits = last != uses_.rend();
    if (!fits) last = uses_.rbegin();
    Bound taken = std::move(*last);
    bound_.erase({taken.chunk, taken.shape});
    uses_.erase(std::next(last).base());
    if (fits) {
      ++counts_.rebound;
      return taken;
    }
  }
  auto request = compiled_.at(shape).request();
  RETURN_IF_ERROR(request);
  ++counts_.made;
  Bound fresh{.shape = shape, .request = std::move(*request)};
  RETURN_IF_ERROR(bind_outputs(fresh));
  return fresh;
}

Result<AttentionRequests::Bound*> AttentionRequests::bound_for(const Call& call) {
  const Key key = {call.chunk->id(), call.shape};
  if (const auto found = bound_.find(key); found != bound_.end()) {
    uses_.splice(uses_.begin(), uses_, found->second);
    return &uses_.front();
  }
  RETURN_IF_ERROR(compile(call.shape));
  auto taken = take(call.shape);
  RETURN_IF_ERROR(taken);
  RETURN_IF_ERROR(bind_chunk(*taken, *call.chunk));
  uses_.push_front(std::move(*taken));
  bound_[key] = uses_.begin();
  return &uses_.front();
}

Result<AttentionRequests::Parts> AttentionRequests::run(const Call& call) {
  const auto bound = bound_for(call);
  RETURN_IF_ERROR(bound);
  Bound& b = **bound;
  const AttentionShape& s = call.shape;
  if (b.q != call.q) RETURN_IF_ERROR(set(b.request, "q", DType::f32, {s.rows, s.heads, s.head_dim}, call.q));
  b.q = call.q;
  if (b.mask != call.mask) RETURN_IF_ERROR(set(b.request, "mask", DType::f32, {s.rows, s.length}, call.mask));
  b.mask = call.mask;
  const auto start = std::chrono::steady_clock::now();
  RETURN_IF_ERROR(b.request.run());
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ++counts_.runs;
  const Outputs& out = outputs_.at(s);
  const auto rows = static_cast<size_t>(s.heads * s.rows);
  return Parts{{out.m, rows}, {out.l, rows}, {out.o, rows * static_cast<size_t>(s.value_dim)}};
}

}  // namespace onw::openvino
