#include "targets/reference/body_inputs.h"

#include <algorithm>

#include "kernels/rope_row.h"
#include "quant/unpack.h"
#include "targets/carried.h"
#include "targets/row_tables.h"

namespace onw::reference {

Result<Inputs> body_inputs(const Program& p, const WeightSet& weights, std::span<const Row> step_rows) {
  const auto rows = static_cast<int64_t>(step_rows.size());
  const auto embed = weights.find(p.embedding);
  RETURN_IF_ERROR(embed);
  Inputs in;
  Tensor x = make_tensor({DType::f32, {kRows, p.hidden}, 0}, rows);
  for (int64_t r = 0; r < rows; ++r) {
    const Row& row = step_rows[static_cast<size_t>(r)];
    if (!row.embedding.empty()) {
      std::ranges::copy(row.embedding, x.row(r).begin());
      continue;
    }
    dequantise_row(*embed, row.token, x.row(r));
    for (float& v : x.row(r)) v *= static_cast<float>(p.embedding_scale);
  }
  in["x"] = std::move(x);
  const auto tables = row_tables(p, weights);
  RETURN_IF_ERROR(tables);
  for (const RowTable& table : *tables) {
    Tensor looked_up = make_tensor({DType::f32, {kRows, table.width()}, 0}, rows);
    for (int64_t r = 0; r < rows; ++r) table.read(step_rows[static_cast<size_t>(r)], looked_up.row(r));
    in[table.input] = std::move(looked_up);
  }
  if (carries_hidden(p)) {
    Tensor carried = make_tensor({DType::f32, {kRows, p.hidden}, 0}, rows);
    for (int64_t r = 0; r < rows; ++r)
      std::ranges::copy(step_rows[static_cast<size_t>(r)].carried, carried.row(r).begin());
    in["carried"] = std::move(carried);
  }
  for (const RopeTable& table : p.rope_tables) {
    const auto half = static_cast<int64_t>(table.inv_freq.size());
    const std::vector<float> inv_freq(table.inv_freq.begin(), table.inv_freq.end());
    Tensor cos = make_tensor({DType::f32, {kRows, half}, 0}, rows), sin = cos;
    for (int64_t r = 0; r < rows; ++r)
      rope_row(static_cast<float>(step_rows[static_cast<size_t>(r)].rope[0]), inv_freq,
               static_cast<float>(table.scaling), cos.row(r).data(), sin.row(r).data());
    in[table.name + ".cos"] = std::move(cos);
    in[table.name + ".sin"] = std::move(sin);
  }
  return in;
}

}  // namespace onw::reference
