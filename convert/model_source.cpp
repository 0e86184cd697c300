#include "convert/model_source.h"

#include "base/output_file.h"

namespace onw {
namespace {

namespace fs = std::filesystem;

int64_t product(std::span<const int64_t> shape) {
  int64_t n = 1;
  for (const int64_t s : shape) n *= s;  // both readers have checked that it fits
  return n;
}

// A fused tensor holds ours as one of several equal parts.
bool fits(const SourceTensor& t, const WeightDecl& w, const WeightSource& from) {
  if (w.shape.size() == 1 && from.begin == 0 && product(t.shape) == w.shape[0]) return true;
  const int64_t outputs = w.shape[0], inputs = w.shape.size() > 1 ? w.shape[1] : 1;
  if (from.fold == Fold::head_half && t.rows() != 2 * outputs) return false;
  return t.columns() == inputs && from.begin + outputs <= t.rows() && t.rows() % outputs == 0;
}

}  // namespace

int64_t SourceTensor::columns() const { return shape.empty() ? 1 : product(std::span(shape).subspan(1)); }

Result<SourceTensor> tensor_of(const ModelSource& source, const WeightDecl& weight) {
  const WeightSource& from = source.source_of(weight);
  auto found = source.find(from);
  RETURN_IF_ERROR(found);
  if (!*found)
    return error(
        Code::missing_tensor,
        "{}: no tensor for '{}'; looked for {}. Is the download complete, and the architecture right?",
        source.path().string(), weight.name,
        from.names.empty() ? "nothing: such files do not have it" : fmt::format("{}", fmt::join(from.names, ", ")));
  if (const Shape& one = weight.shape; one.size() == 2 && one[0] == 1 && (*found)->shape == std::vector{one[1]})
    (*found)->shape = {1, one[1]};  // a row that such files write as a vector
  if (!fits(**found, weight, from))
    return error(Code::bad_format,
                 "{}: '{}' is [{}], config.json makes it [{}]{}. The files do not belong together: download them again",
                 (*found)->file.string(), (*found)->name, fmt::join((*found)->shape, ", "),
                 fmt::join(weight.shape, ", "), from.begin > 0 ? fmt::format(" from row {}", from.begin) : "");
  const int64_t d = weight.head_dim;
  if (from.fold == Fold::rope_unpair && (d <= 0 || d % 2 != 0 || weight.shape[0] % d != 0))
    return error(
        Code::bad_format,
        "{}: '{}' has {} rows, which are no heads of an even size ({}). The metadata is wrong: take another file",
        (*found)->file.string(), (*found)->name, weight.shape[0], d);
  return std::move(**found);
}

Result<std::string> file_fingerprint(const fs::path& file) {
  const auto modified = modification_time_ns(file);
  RETURN_IF_ERROR(modified);
  std::error_code failed;
  const auto bytes = fs::file_size(file, failed);
  return fmt::format("{} {} {}\n", fs::absolute(file, failed).string(), bytes, *modified);
}

Result<std::unique_ptr<ModelSource>> open_source(const fs::path& path) {
  std::error_code failed;
  if (fs::is_directory(path, failed)) return open_hugging_face_source(path);
  if (!fs::exists(path, failed))
    return error(Code::not_found, "{}: neither a folder nor a file. Check the name, or fetch it: onw pull",
                 path.string());
  if (path.extension() == ".gguf") return open_gguf_source(path);
  return error(Code::unsupported, "{}: not a .gguf file. Name the folder of a Hugging Face model, or a .gguf file",
               path.string());
}

}  // namespace onw
