#include "tests/golden.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "graph/json.h"
#include "store/safetensors.h"

namespace onw::testing {
namespace {

template <class T>
Result<std::vector<T>> values(const SafetensorsFile& file, std::string_view name, ElementType type) {
  const SafeTensor* tensor = file.find(name);
  if (tensor == nullptr || tensor->type != type)
    return error(Code::bad_format, "{}: no {} tensor '{}'", file.file().path().string(), onw::name(type), name);
  const auto bytes = file.bytes(*tensor);
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(T));
  return out;
}

Result<std::vector<int32_t>> token_ids(const SafetensorsFile& file, std::string_view name) {
  auto wide = values<int64_t>(file, name, ElementType::i64);
  if (!wide) return failure(std::move(wide));
  return std::vector<int32_t>(wide->begin(), wide->end());
}

std::string metadata(const SafetensorsFile& file, const std::string& key) {
  const auto found = file.header().metadata.find(key);
  return found == file.header().metadata.end() ? std::string() : found->second;
}

Result<nlohmann::json> json_metadata(const SafetensorsFile& file, const std::string& key) {
  return parse_json(metadata(file, key), file.file().path().string() + ", metadata '" + key + "'");
}

uint64_t number(std::string_view text) {
  uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

Result<Golden> read_golden(const std::filesystem::path& path) {
  auto file = SafetensorsFile::open(path);
  RETURN_IF_ERROR(file);
  auto ids = token_ids(*file, "ids");
  RETURN_IF_ERROR(ids);
  auto logits = values<float>(*file, "logits", ElementType::f32);
  RETURN_IF_ERROR(logits);
  auto tensors = json_metadata(*file, "tensors");
  RETURN_IF_ERROR(tensors);
  auto segments = json_metadata(*file, "segments");
  RETURN_IF_ERROR(segments);

  Golden golden{.name = path.stem().string(),
                .family = metadata(*file, "family"),
                .width = metadata(*file, "width"),
                .config = metadata(*file, "config"),
                .seed = number(metadata(*file, "seed")),
                .segments = segments->get<std::vector<int64_t>>(),
                .ids = std::move(*ids),
                .logits = std::move(*logits)};
  if (golden.ids.empty() || golden.logits.size() % golden.ids.size() != 0)
    return error(Code::bad_format, "{}: {} logits for {} ids", path.string(), golden.logits.size(), golden.ids.size());
  golden.vocabulary = static_cast<int64_t>(golden.logits.size() / golden.ids.size());
  for (const auto& t : *tensors)
    golden.tensors.push_back(
        {t.value("name", ""), t.value("shape", std::vector<int64_t>{}), t.value("exponent", 0), t.value("offset", 0)});
  return golden;
}

Result<RealGolden> read_real_golden(const std::filesystem::path& path) {
  auto file = SafetensorsFile::open(path);
  RETURN_IF_ERROR(file);
  auto ids = token_ids(*file, "ids");
  RETURN_IF_ERROR(ids);
  auto log_sum_exp = values<float>(*file, "log_sum_exp", ElementType::f32);
  RETURN_IF_ERROR(log_sum_exp);
  auto top_ids = values<int32_t>(*file, "top_ids", ElementType::i32);
  RETURN_IF_ERROR(top_ids);
  auto top_logits = values<float>(*file, "top_logits", ElementType::f32);
  RETURN_IF_ERROR(top_logits);
  auto noise = values<float>(*file, "noise", ElementType::f32);
  RETURN_IF_ERROR(noise);
  auto parts = json_metadata(*file, "parts");
  RETURN_IF_ERROR(parts);
  if (ids->empty() || log_sum_exp->size() != ids->size() || noise->size() != ids->size() ||
      top_ids->size() != top_logits->size())
    return error(Code::bad_format, "{}: tensors of different lengths", path.string());
  const auto top = static_cast<int64_t>(top_ids->size() / ids->size());
  return RealGolden{.name = metadata(*file, "model"),
                    .model_sha256 = metadata(*file, "model_sha256"),
                    .ids = std::move(*ids),
                    .parts = parts->get<std::vector<int64_t>>(),
                    .top = top,
                    .log_sum_exp = std::move(*log_sum_exp),
                    .top_ids = std::move(*top_ids),
                    .top_logits = std::move(*top_logits),
                    .noise = std::move(*noise)};
}

std::vector<std::filesystem::path> golden_paths(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const auto& path = entry.path();
    if (path.extension() == ".safetensors" && !path.stem().string().starts_with("real-")) paths.push_back(path);
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

double relative_error(std::span<const float> ours, std::span<const float> theirs) {
  double difference = 0, largest = 0;
  if (ours.size() != theirs.size()) return std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < ours.size(); ++i) {
    if (!std::isfinite(ours[i])) return std::numeric_limits<double>::infinity();
    difference = std::max(difference, std::abs(static_cast<double>(ours[i]) - theirs[i]));
    largest = std::max(largest, std::abs(static_cast<double>(theirs[i])));
  }
  return difference / largest;
}

}  // namespace onw::testing
