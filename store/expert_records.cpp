#include "store/expert_records.h"

#include "base/checked.h"
#include "base/result.h"

namespace onw {
namespace {

constexpr int64_t kPartAlignment = 64;

struct Places {
  std::vector<PartOffsets> parts;
  int64_t bytes = 0;
};

Places place(std::span<const StoredWeight> parts) {
  Places places;
  places.parts.resize(parts.size());
  const auto take = [&places](int64_t bytes) {
    if (bytes == 0) return int64_t{0};
    const int64_t at = round_up(places.bytes, kPartAlignment);
    places.bytes = at + bytes;
    return at;
  };
  const auto each = [&](bool vectors, auto f) {
    for (size_t i = 0; i < parts.size(); ++i)
      if ((parts[i].shape.size() == 1) == vectors) f(places.parts[i], parts[i].bytes());
  };
  each(false, [&](PartOffsets& at, const WeightBytes& n) { at.codes = take(n.codes); });
  each(false, [&](PartOffsets& at, const WeightBytes& n) { at.scales = take(n.scales); });
  each(false, [&](PartOffsets& at, const WeightBytes& n) { at.minima = take(n.minima); });
  each(true, [&](PartOffsets& at, const WeightBytes& n) { at.codes = take(n.codes); });
  places.bytes = round_up(places.bytes, kRecordAlignment);
  return places;
}

}  // namespace

std::vector<PartOffsets> ExpertRecords::offsets() const { return place(parts).parts; }

int64_t ExpertRecords::record_bytes() const { return place(parts).bytes; }

StoredWeight ExpertRecords::stored() const {
  std::string form;
  for (const StoredWeight& part : parts) form += fmt::format("{}{}", form.empty() ? "" : ", ", form_of(part));
  return {.name = name, .shape = {experts}, .record_bytes = record_bytes(), .record_form = std::move(form)};
}

WeightView ExpertRecords::view(size_t part, std::span<const std::byte> records) const {
  const Places places = place(parts);
  const StoredWeight& w = parts[part];
  const WeightBytes n = w.bytes();
  const auto bytes = [&](int64_t at, int64_t count) {
    return records.subspan(static_cast<size_t>(at), static_cast<size_t>(count));
  };
  WeightView view{.format = w.format, .layout = w.layout, .outputs = w.outputs(), .inputs = w.inputs()};
  view.codes = bytes(places.parts[part].codes, n.codes);
  view.scales = bytes(places.parts[part].scales, n.scales);
  view.minima = bytes(places.parts[part].minima, n.minima);
  view.experts = experts;
  view.expert_stride = places.bytes;
  return view;
}

}  // namespace onw
