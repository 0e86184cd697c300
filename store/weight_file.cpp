#include "store/weight_file.h"

#include <algorithm>
#include <cstring>

#include "base/digest.h"

namespace onw {
namespace {

// Records of experts are plain bytes, as a plain format's values are.
std::string codes_name(const StoredWeight& w) { return info(w.format).plain() ? w.name : w.name + ".codes"; }

}  // namespace

std::string sampled_digest(std::span<const std::byte> file) {
  constexpr size_t kBlock = 4096, kBlocks = 64;
  Digest hash;
  const size_t blocks = (file.size() + kBlock - 1) / kBlock, samples = std::min(blocks, kBlocks);
  for (size_t i = 0; i < samples; ++i) {
    const size_t block = samples == 1 ? 0 : i * (blocks - 1) / (samples - 1);
    hash.add(file.subspan(block * kBlock, std::min(kBlock, file.size() - block * kBlock)));
  }
  return hash.hex();
}

Result<WeightFile> WeightFile::open(const std::filesystem::path& path, std::vector<StoredWeight> weights) {
  WeightFile opened;
  auto file = SafetensorsFile::open(path);
  RETURN_IF_ERROR(file);
  opened.file_ = std::move(*file);
  opened.file_.file().advise_huge_pages();
  RETURN_IF_ERROR(opened.check_footer());
  for (StoredWeight& w : weights) {
    RETURN_IF_ERROR(opened.check_weight(w));
    std::string name = w.name;
    opened.weights_.emplace(std::move(name), std::move(w));
  }
  return opened;
}

Result<void> WeightFile::check_footer() const {
  const SafeTensor* footer = file_.find(kFooterName);
  const auto all = data();
  const std::string_view header(reinterpret_cast<const char*>(all.data()), file_.header().data_begin);
  const std::string expected = footer_of(header, bytes());
  const bool same = footer != nullptr && footer->end - footer->begin == kFooterBytes &&
                    std::memcmp(file_.bytes(*footer).data(), expected.data(), kFooterBytes) == 0;
  if (same) return {};
  return error(Code::truncated_file,
               "{}: the footer of a finished file is {}. The conversion or the copy did not end: do it again",
               path().string(), footer == nullptr ? "missing" : "not that of these bytes");
}

Result<void> WeightFile::check_weight(const StoredWeight& w) const {
  const auto check_part = [&](const std::string& tensor, const TensorForm& form) -> Result<void> {
    const SafeTensor* t = file_.find(tensor);
    if (t == nullptr)
      return error(Code::missing_tensor, "{}: no tensor '{}', which engine.json lists. Convert the model again",
                   path().string(), tensor);
    if (name(t->type) != form.dtype || t->shape != form.shape)
      return error(Code::bad_format, "{}: '{}' is {} [{}], engine.json says {} [{}]. Convert the model again",
                   path().string(), tensor, name(t->type), fmt::join(t->shape, ", "), form.dtype,
                   fmt::join(form.shape, ", "));
    return {};
  };
  const auto& forms = file_.header().metadata;
  if (const auto said = forms.find(w.name); said != forms.end() && said->second != form_of(w))
    return error(
        Code::bad_format,
        "{}: '{}' was written as {}, engine.json says {}. It is not the engine.json of these weights: copy the "
        "folder again, or convert the model again",
        path().string(), w.name, said->second, form_of(w));
  RETURN_IF_ERROR(check_part(codes_name(w), codes_form(w)));
  if (w.bytes().scales > 0) RETURN_IF_ERROR(check_part(w.name + ".scales", scales_form(w)));
  if (w.bytes().minima > 0) RETURN_IF_ERROR(check_part(w.name + ".minima", scales_form(w)));
  return {};
}

Result<WeightView> WeightFile::weight(std::string_view name) const {
  const auto it = weights_.find(name);
  if (it == weights_.end())
    return error(Code::missing_tensor, "{}: no weight '{}' (the file has {}). Convert the model again", path().string(),
                 name, weights_.size());
  const StoredWeight& w = it->second;
  const auto part = [&](const std::string& tensor) {
    const SafeTensor* t = file_.find(tensor);
    return t == nullptr ? std::span<const std::byte>() : file_.bytes(*t);
  };
  WeightView view{.format = w.format, .layout = w.layout, .outputs = w.outputs(), .inputs = w.inputs()};
  view.codes = part(codes_name(w));
  view.scales = part(w.name + ".scales");
  view.minima = part(w.name + ".minima");
  return view;
}

namespace {

// `b` begins where `a` ends; two empty parts (of a format without minima) do too.
bool follows(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.empty() == b.empty() && (a.empty() || a.data() + a.size() == b.data());
}

std::span<const std::byte> joined(std::span<const std::byte> a, std::span<const std::byte> b) {
  return {a.data(), a.size() + b.size()};
}

}  // namespace

Result<WeightView> WeightFile::merged(std::span<const std::string> names) const {
  CHECK(!names.empty());
  auto all = weight(names.front());
  RETURN_IF_ERROR(all);
  for (size_t i = 1; i < names.size(); ++i) {
    const auto next = weight(names[i]);
    RETURN_IF_ERROR(next);
    const bool same = next->format == all->format && next->layout == all->layout && next->inputs == all->inputs;
    const bool whole_tiles = all->layout == Layout::rows || all->outputs % 16 == 0;
    if (!same || !whole_tiles || !follows(all->codes, next->codes) || !follows(all->scales, next->scales) ||
        !follows(all->minima, next->minima))
      return error(Code::invalid_argument, "{}: '{}' does not follow '{}' as one weight", path().string(), names[i],
                   names[i - 1]);
    all->outputs += next->outputs;
    all->codes = joined(all->codes, next->codes);
    all->scales = joined(all->scales, next->scales);
    all->minima = joined(all->minima, next->minima);
  }
  return all;
}

bool WeightFile::adjacent(std::span<const std::string> names) const { return merged(names).has_value(); }

std::string WeightFile::sampled_digest() const { return onw::sampled_digest(data()); }
std::string WeightFile::digest() const { return sha256_hex(data()); }

}  // namespace onw
