// Tables beside the embedding, of which the host looks up a row for every token (Program::lookups).
#pragma once

#include <string>
#include <vector>

#include "graph/program.h"
#include "quant/unpack.h"
#include "targets/executable.h"
#include "targets/weights.h"

namespace onw {

struct RowTable {
  std::string input;  // of the body
  WeightView table;
  float scale = 1;

  int64_t width() const { return table.inputs; }

  // out [width()]: the row's token. Row 0 for a row that brings an embedding of its own, as Gemma 4 pads the places of
  // images.
  void read(const Row& row, std::span<float> out) const {
    dequantise_row(table, row.embedding.empty() ? row.token : 0, out);
    for (float& v : out) v *= scale;
  }
};

// Errors: missing_tensor.
inline Result<std::vector<RowTable>> row_tables(const Program& program, const WeightSet& weights) {
  std::vector<RowTable> tables;
  for (const RowLookup& l : program.lookups) {
    const auto table = weights.find(l.weight);
    RETURN_IF_ERROR(table);
    tables.push_back({l.input, *table, static_cast<float>(l.scale)});
  }
  return tables;
}

}  // namespace onw
