#include "targets/openvino/graph_inputs.h"

#include <algorithm>

#include "graph/ops.h"
#include "kernels/rope_row.h"
#include "quant/unpack.h"

namespace onw::openvino {

Result<GraphInputs> GraphInputs::create(const Program& program, const WeightSet& weights) {
  GraphInputs inputs;
  const auto embedding = weights.find(program.embedding);
  RETURN_IF_ERROR(embedding);
  inputs.embedding_ = *embedding;
  inputs.embedding_scale_ = static_cast<float>(program.embedding_scale);
  auto lookups = row_tables(program, weights);
  RETURN_IF_ERROR(lookups);
  inputs.lookups_ = std::move(*lookups);
  inputs.rope_tables_ = program.rope_tables;
  for (const RopeTable& t : program.rope_tables) inputs.inv_freq_.emplace_back(t.inv_freq.begin(), t.inv_freq.end());
  for (const Node& n : program.function("body")->nodes)
    if (n.op == Op::input) inputs.names_.push_back(n.label);
  return inputs;
}

void GraphInputs::write(std::span<const Row> rows, const BufferPlan& buffers, const cpu::RunContext& c,
                        ThreadPool& pool) const {
  const auto slot = [&](const std::string& name) { return buffers.slots.at(name); };
  const cpu::Slot x = slot("x");
  pool.parallel_for(c.rows, [&](int64_t first, int64_t last, int) {
    for (int64_t r = first; r < last; ++r) {
      const Row& row = rows[static_cast<size_t>(r)];
      for (const RowTable& table : lookups_) {
        const cpu::Slot in = slot(table.input);
        table.read(row, {in.f32(c) + r * in.stride, static_cast<size_t>(in.width)});
      }
      const std::span<float> to(x.f32(c) + r * x.stride, static_cast<size_t>(x.width));
      if (!row.embedding.empty()) {
        std::ranges::copy(row.embedding, to.begin());
        continue;
      }
      dequantise_row(embedding_, row.token, to);
      for (float& v : to) v *= embedding_scale_;
    }
  });
  for (size_t t = 0; t < inv_freq_.size(); ++t) {
    const RopeTable& table = rope_tables_[t];
    if (!buffers.slots.contains(table.name + ".cos")) continue;  // no layer rotates by it
    const cpu::Slot cos = slot(table.name + ".cos"), sin = slot(table.name + ".sin");
    for (int64_t r = 0; r < c.rows; ++r)
      rope_row(static_cast<float>(rows[static_cast<size_t>(r)].rope[0]), inv_freq_[t],
               static_cast<float>(table.scaling), cos.f32(c) + r * cos.stride, sin.f32(c) + r * sin.stride);
  }
}

void GraphInputs::fill_up(const BufferPlan& buffers, const cpu::RunContext& c, int64_t all_rows) const {
  for (const std::string& name : names_) fill_up_rows(buffers, name, c, all_rows);
}

void fill_up_rows(const BufferPlan& buffers, const std::string& name, const cpu::RunContext& c, int64_t all_rows) {
  const auto found = buffers.slots.find(name);
  if (found == buffers.slots.end()) return;
  const cpu::Slot& slot = found->second;
  const float* last = slot.f32(c) + (c.rows - 1) * slot.stride;
  for (int64_t r = c.rows; r < all_rows; ++r) std::copy_n(last, slot.width, slot.f32(c) + r * slot.stride);
}

}  // namespace onw::openvino
