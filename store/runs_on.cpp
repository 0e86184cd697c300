#include "store/runs_on.h"

#include <algorithm>
#include <array>

namespace onw {
namespace {

using enum WeightFormat;
using enum Support;

constexpr std::array<std::string_view, 5> kDevices = {"cpu", "openvino:CPU", "3720", "4000", "5010"};

struct Row {
  WeightFormat format;
  std::array<Support, kDevices.size()> support;  // in the order of kDevices
};

// e4g32 is only looked up by the host, so every device takes it. NF4 came with generation 4000.
constexpr Row kRows[] = {
    {f32, {native, native, rewritten, rewritten, rewritten}},  {f16, {native, native, native, native, native}},
    {bf16, {native, native, rewritten, rewritten, rewritten}}, {q8c, {native, native, native, native, native}},
    {q8g128, {native, native, native, native, native}},        {q8g64, {native, native, native, native, native}},
    {q8g32, {native, native, refused, refused, refused}},      {q4g128, {native, native, native, native, native}},
    {q4g64, {native, native, native, native, native}},         {q4g32, {native, native, refused, refused, refused}},
    {q4sg128, {native, native, native, native, native}},       {q4sg64, {native, native, native, native, native}},
    {q4sg32, {native, native, refused, refused, refused}},     {q4c, {native, native, native, native, native}},
    {q4g32m, {native, native, refused, refused, refused}},     {q5g32m, {native, native, refused, refused, refused}},
    {nf4c, {native, native, refused, native, native}},         {iq4g32, {native, refused, refused, refused, refused}},
    {u2g128, {native, native, refused, refused, refused}},     {mxfp4, {native, refused, refused, refused, refused}},
    {e4g32, {native, native, native, native, native}},
};

}  // namespace

std::span<const std::string_view> all_devices() { return kDevices; }

Support support(WeightFormat format, std::string_view device) {
  const auto row = std::ranges::find(kRows, format, &Row::format);
  if (device == "npu") return *std::min_element(row->support.begin() + 3, row->support.end());
  const auto at = std::ranges::find(kDevices, device);
  return at == kDevices.end() ? refused : row->support[at - kDevices.begin()];
}

bool is_npu(std::string_view device) {
  return device == "npu" || std::ranges::find(kDevices.begin() + 2, kDevices.end(), device) != kDevices.end();
}

std::string_view remedy(std::string_view device) {
  return is_npu(device) ? "onw convert SRC OUT --for npu" : "onw convert SRC OUT --format q4g128";
}

std::vector<std::string> runs_on(std::span<const WeightFormat> formats) {
  std::vector<std::string> devices;
  for (const std::string_view device : kDevices)
    if (std::ranges::all_of(formats, [&](WeightFormat f) { return support(f, device) != refused; }))
      devices.emplace_back(device);
  return devices;
}

}  // namespace onw
