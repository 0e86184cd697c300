#include "targets/reference/recurrent_ops.h"

#include "kernels/delta/reference.h"
#include "targets/reference/recurrent_history.h"

namespace onw::reference {
namespace {

// [kernel, channels] of the weight's [channels, kernel].
std::vector<float> taps_first(const std::vector<float>& w, int64_t channels, int64_t kernel) {
  std::vector<float> out(w.size());
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t j = 0; j < kernel; ++j)
      out[static_cast<size_t>(j * channels + c)] = w[static_cast<size_t>(c * kernel + j)];
  return out;
}

// One row of gated_delta, all heads; `state` holds the rows before it.
class DeltaRow {
 public:
  DeltaRow(const Node& node, const Operands& in, const Row& row, int64_t r, RecurrentHistory& history, Tensor& y)
      : in_(in),
        s_(history.state()),
        r_(r),
        tiled_(node.attributes.text("heads", "grouped") == "tiled"),
        slot_(static_cast<int>(row.index % kDeltaChunk)),
        base_(chunk_begin(row.index)),
        history_(history),
        y_(y) {}

  void run() {
    float* log = history_.row(base_ + slot_);
    std::ranges::copy(in_.values[1]->row(r_), log);  // k
    for (int64_t h = 0; h < s_.heads; ++h) scalar::gated_delta_row(chunk(h), slot_);
    if (slot_ + 1 < kDeltaChunk) return;
    std::vector<float>& next = history_.add_edge(base_ + kDeltaChunk);
    for (int64_t h = 0; h < s_.heads; ++h) {
      DeltaChunk d = chunk(h);
      d.next_edge = next.data() + h * s_.head_dim * s_.value_dim;
      scalar::gated_delta_edge(d);
    }
  }

 private:
  DeltaChunk chunk(int64_t h) {
    const int64_t key_head = key_head_of(h, s_.heads, s_.key_heads, tiled_);
    float* log = history_.row(base_);
    DeltaChunk d{.key_dim = s_.head_dim,
                 .value_dim = s_.value_dim,
                 .first = slot_,
                 .last = slot_ + 1,
                 .edge = history_.edge(base_).data() + h * s_.head_dim * s_.value_dim,
                 .u = log + delta_u_at(s_) + h * s_.value_dim,
                 .c = log + delta_c_at(s_) + h,
                 .log_stride = history_.row_floats()};
    for (int j = 0; j <= slot_; ++j) d.k[j] = log + j * d.log_stride + key_head * s_.head_dim;
    d.q[slot_] = in_.values[0]->row(r_).data() + key_head * s_.head_dim;
    d.v[slot_] = in_.values[2]->row(r_).data() + h * s_.value_dim;
    d.out[slot_] = y_.row(r_).data() + h * s_.value_dim;
    d.g[slot_] = in_.values[3]->row(r_)[static_cast<size_t>(h)];
    d.beta[slot_] = in_.values[4]->row(r_)[static_cast<size_t>(h)];
    return d;
  }

  const Operands& in_;
  const StateDecl& s_;
  int64_t r_;
  bool tiled_;
  int slot_;
  int64_t base_;
  RecurrentHistory& history_;
  Tensor& y_;
};

}  // namespace

Result<Tensor> conv_update(const Node& n, const Operands& in, const Context& c) {
  const int state = c.program.state(n.attributes.text("state"));
  const StateDecl& s = c.program.states[static_cast<size_t>(state)];
  const auto weight = load_weight(c.program, c.weights, in.names[1]);
  RETURN_IF_ERROR(weight);
  std::vector<float> bias;
  if (in.names.size() > 2) {
    auto loaded = load_weight(c.program, c.weights, in.names[2]);
    RETURN_IF_ERROR(loaded);
    bias = std::move(*loaded);
  }
  const std::vector<float> w = taps_first(*weight, s.heads, s.kernel);
  Tensor y = make_tensor(n.type, c.rows);
  for (int64_t r = 0; r < c.rows; ++r) {
    const Row& row = c.step->rows[static_cast<size_t>(r)];
    RecurrentHistory& history = c.recurrent(row.sequence, state);
    std::ranges::copy(in.values[0]->row(r), history.row(row.index));
    std::vector<const float*> x;
    for (int64_t j = 0; j < s.kernel; ++j) x.push_back(history.row(row.index - s.kernel + 1 + j));
    scalar::conv_row({.x = x.data(),
                      .w = w.data(),
                      .bias = bias.empty() ? nullptr : bias.data(),
                      .kernel = s.kernel,
                      .channels = s.heads,
                      .begin = 0,
                      .end = s.heads,
                      .y = y.row(r).data()});
  }
  return y;
}

Result<Tensor> gated_delta(const Node& n, const Operands& in, const Context& c) {
  const int state = c.program.state(n.attributes.text("state"));
  Tensor y = make_tensor(n.type, c.rows);
  for (int64_t r = 0; r < c.rows; ++r) {
    const Row& row = c.step->rows[static_cast<size_t>(r)];
    DeltaRow(n, in, row, r, c.recurrent(row.sequence, state), y).run();
  }
  return y;
}

}  // namespace onw::reference
