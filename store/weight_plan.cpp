#include "store/weight_plan.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/checked.h"
#include "base/digest.h"
#include "base/result.h"

namespace onw {
namespace {

constexpr int64_t kDataAlignment = 4096;
constexpr int64_t kTensorAlignment = 64;
constexpr std::string_view kFooterMagic = "onw: complete 1\n";

// Lays tensors one after another, with a pad where the next must not begin yet.
class Layouter {
 public:
  explicit Layouter(std::vector<PlannedTensor>& tensors) : tensors_(tensors) {}

  void add(std::string name, TensorForm form, int64_t bytes, int unit) {
    if (const int64_t gap = round_up(at_, kTensorAlignment) - at_; gap > 0)
      push(fmt::format("pad.{}", pads_++), {"U8", {gap}}, gap, -1);
    push(std::move(name), std::move(form), bytes, unit);
  }

  int64_t end() const { return at_; }

 private:
  void push(std::string name, TensorForm form, int64_t bytes, int unit) {
    tensors_.push_back({std::move(name), std::move(form.dtype), std::move(form.shape), at_, at_ + bytes, unit});
    at_ += bytes;
  }

  std::vector<PlannedTensor>& tensors_;
  int64_t at_ = 0;
  int pads_ = 0;
};

std::string plain_dtype(WeightFormat format) {
  return format == WeightFormat::f32 ? "F32" : format == WeightFormat::f16 ? "F16" : "BF16";
}

void add_unit(Layouter& out, const WeightUnit& unit, int index) {
  for (const StoredWeight& w : unit.weights)
    out.add(info(w.format).plain() ? w.name : w.name + ".codes", codes_form(w), w.bytes().codes, index);
  for (const StoredWeight& w : unit.weights)
    if (w.bytes().scales > 0) out.add(w.name + ".scales", scales_form(w), w.bytes().scales, index);
  for (const StoredWeight& w : unit.weights)
    if (w.bytes().minima > 0) out.add(w.name + ".minima", scales_form(w), w.bytes().minima, index);
}

// The header in the file's order (a JSON object has none, but a person who reads it likes one), padded with spaces.
std::string header_of(std::span<const WeightUnit> units, std::span<const PlannedTensor> tensors) {
  nlohmann::ordered_json root;
  root["__metadata__"] = {{"format", "onw"}};
  for (const WeightUnit& unit : units)
    for (const StoredWeight& w : unit.weights) root["__metadata__"][w.name] = form_of(w);
  for (const PlannedTensor& t : tensors)
    root[t.name] = {{"dtype", t.dtype}, {"shape", t.shape}, {"data_offsets", {t.begin, t.end}}};
  std::string text = root.dump();
  text.resize(round_up(static_cast<int64_t>(text.size()) + 8, kDataAlignment) - 8, ' ');
  const uint64_t length = text.size();
  std::string header(sizeof length, '\0');
  std::memcpy(header.data(), &length, sizeof length);
  return header + text;
}

}  // namespace

int64_t StoredWeight::inputs() const {
  int64_t n = 1;
  for (size_t i = 1; i < shape.size(); ++i) n *= shape[i];
  return n;
}

std::string form_of(const StoredWeight& w) {
  if (w.record_bytes > 0) return w.record_form;
  return fmt::format("{} {}", name(w.format), name(w.layout));
}

TensorForm codes_form(const StoredWeight& w) {
  if (w.record_bytes > 0) return {"U8", {w.outputs(), w.record_bytes}};
  const FormatInfo& f = info(w.format);
  const int64_t out = w.outputs(), in = w.inputs(), blocks = ceil_div(out, 16);
  if (f.plain()) {
    if (w.layout == Layout::tiles) return {plain_dtype(w.format), {blocks, in, 16}};
    return {plain_dtype(w.format), w.shape};
  }
  const int64_t per_byte = 8 / f.storage_bits;
  if (w.layout == Layout::tiles) return {"U8", {blocks, in / (4 * per_byte), 64}};
  return {f.bits == 8 ? "I8" : "U8", {out, in / per_byte}};
}

TensorForm scales_form(const StoredWeight& w) {
  const FormatInfo& f = info(w.format);
  const int64_t groups = f.group == 0 ? 1 : w.inputs() / f.group;
  const std::string dtype = "F16";
  if (w.layout == Layout::tiles) return {dtype, {ceil_div(w.outputs(), 16), groups, 16}};
  return {dtype, {w.outputs(), groups}};
}

WeightFilePlan plan_weight_file(std::span<const WeightUnit> units) {
  WeightFilePlan plan;
  Layouter layouter(plan.tensors);
  for (size_t i = 0; i < units.size(); ++i) add_unit(layouter, units[i], static_cast<int>(i));
  layouter.add(std::string(kFooterName), {"U8", {kFooterBytes}}, kFooterBytes, -1);
  plan.header = header_of(units, plan.tensors);
  const auto data_begin = static_cast<int64_t>(plan.header.size());
  for (PlannedTensor& t : plan.tensors) {
    t.begin += data_begin;
    t.end += data_begin;
  }
  plan.file_bytes = data_begin + layouter.end();
  return plan;
}

std::string footer_of(std::string_view header, int64_t file_bytes) {
  std::string footer(kFooterMagic);
  footer.append(reinterpret_cast<const char*>(&file_bytes), sizeof file_bytes);
  const std::string hex = sha256_hex(header);
  for (size_t i = 0; i < hex.size(); i += 2)
    footer.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  footer.resize(kFooterBytes, '\0');
  return footer;
}

}  // namespace onw
