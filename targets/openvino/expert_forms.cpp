#include "targets/openvino/expert_forms.h"

#include <algorithm>

namespace onw::openvino {
namespace {

constexpr int64_t kFewRows = 4, kBlockRows = 16, kMostSlots = 32;
constexpr int64_t kBatchRows[] = {16, 32, 64, 128};
// Rows of all slots of a batch, where there are as many experts: a call has a fixed cost, and slots that stay empty
// cost as much as full ones.
constexpr int64_t kRowsOfBatch = 256;

ExpertShape form(ExpertShape shape, int64_t rows, int64_t slots, bool grouped) {
  shape.rows = rows;
  shape.slots = slots;
  shape.grouped = grouped;
  return shape;
}

}  // namespace

std::vector<ExpertShape> ExpertForms::all() const {
  std::vector<ExpertShape> shapes = together;
  shapes.insert(shapes.end(), batches.begin(), batches.end());
  return shapes;
}

const ExpertShape* ExpertForms::for_rows(int64_t rows) const {
  const auto found = std::ranges::find_if(together, [rows](const ExpertShape& s) { return s.rows >= rows; });
  return found == together.end() ? nullptr : &*found;
}

const ExpertShape& ExpertForms::batch_for(int64_t rows) const {
  const auto found = std::ranges::find_if(batches, [rows](const ExpertShape& s) { return s.rows >= rows; });
  return found == batches.end() ? batches.back() : *found;
}

ExpertForms expert_forms(const ExpertShape& layer, int64_t chosen, int64_t experts, int64_t most_rows) {
  ExpertForms forms;
  forms.together.push_back(form(layer, 1, chosen, false));
  if (most_rows > 1) forms.together.push_back(form(layer, kFewRows, chosen, false));
  if (most_rows > kFewRows) forms.together.push_back(form(layer, kBlockRows, std::min(experts, kMostSlots), false));
  if (most_rows <= kBlockRows) return forms;
  for (const int64_t rows : kBatchRows) {
    forms.batches.push_back(form(layer, rows, std::min(experts, kRowsOfBatch / rows), true));
    if (rows >= most_rows) break;
  }
  return forms;
}

}  // namespace onw::openvino
