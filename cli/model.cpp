#include "cli/model.h"

#include "base/digest.h"
#include "base/output_file.h"
#include "base/paths.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "hub/local.h"
#include "store/model_folder.h"

namespace onw::cli {
namespace {

namespace fs = std::filesystem;

// Where the conversion of a .gguf file belongs: another name as soon as the file is another.
Result<fs::path> place_for(const fs::path& gguf) {
  std::error_code failure;
  const auto path = fs::canonical(gguf, failure);
  if (failure) return error(Code::io, "{}: {}", gguf.string(), failure.message());
  const auto bytes = fs::file_size(path, failure);
  if (failure) return error(Code::io, "{}: {}", gguf.string(), failure.message());
  const auto modified = modification_time_ns(path);
  RETURN_IF_ERROR(modified);
  Digest digest;
  digest.add(fmt::format("{}\n{}\n{}", path.string(), bytes, *modified));
  constexpr size_t kDigits = 8;
  return models_folder(home_folder()) / "local" /
         fmt::format("{}-{}", path.stem().string(), digest.hex().substr(0, kDigits));
}

Result<fs::path> converted_once(const fs::path& gguf) {
  const auto place = place_for(gguf);
  RETURN_IF_ERROR(place);
  if (is_model_folder(*place)) return place;
  fmt::print(stderr, "Converting {} into the store, once\n", gguf.string());
  ConvertOptions options;
  options.provenance.command = fmt::format("onw convert {}", gguf.string());
  RETURN_IF_ERROR(convert_with_progress(gguf, *place, options));
  return place;
}

}  // namespace

Result<fs::path> locate_model(const std::string& model) {
  std::error_code none;
  const fs::path path(model);
  if (fs::is_directory(path, none)) {
    if (is_model_folder(path)) return path;
    if (fs::exists(path / "config.json", none))
      return error(Code::unsupported, "{}: a published model, not yet converted. Convert it: onw convert {} OUT", model,
                   model);
    return error(Code::not_found, "{}: a folder without a model (neither engine.json nor config.json is in it)", model);
  }
  if (path.extension() == ".gguf") {
    if (fs::is_regular_file(path, none)) return converted_once(path);
    return error(Code::not_found, "{}: no such file", model);
  }
  auto local = find_model(models_folder(home_folder()), model);
  if (!local) return failure(std::move(local));
  return local->folder;
}

Result<ConvertSummary> convert_with_progress(const fs::path& source, const fs::path& out,
                                             const ConvertOptions& options) {
  Progress progress("converting", 0, Progress::Unit::bytes);
  bool told = false;
  return convert(source, out, options, [&](const ConvertProgress& p) {
    if (!told && p.bytes_kept > 0)
      fmt::print(stderr, "Going on behind {} of an earlier run\n", bytes_text(p.bytes_kept));
    told = true;
    progress.update(p.bytes_done, p.bytes_total);
    return true;
  });
}

Result<ConvertOptions> convert_options(const Args& args) {
  ConvertOptions options;
  options.made_for = args.text("--for");
  options.replace = args.has("--replace");
  if (!args.has("--format")) return options;
  const auto format = parse_format_option(args.text("--format"));
  RETURN_IF_ERROR(format);
  options.format = *format;
  return options;
}

}  // namespace onw::cli
