#include "cli/model.h"

#include "base/paths.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "convert/convert_once.h"
#include "hub/local.h"
#include "store/model_folder.h"

namespace onw::cli {
namespace {

namespace fs = std::filesystem;

// Shows a conversion on stderr, and what it goes on with.
ConvertObserver shown_on(Progress& progress) {
  return [&progress, told = false](const ConvertProgress& p) mutable {
    if (!told && p.bytes_kept > 0)
      fmt::print(stderr, "Going on behind {} of an earlier run\n", bytes_text(p.bytes_kept));
    told = true;
    progress.update(p.bytes_done, p.bytes_total);
    return true;
  };
}

Result<fs::path> converted_once(const fs::path& gguf) {
  ConvertOptions options;
  options.provenance.command = fmt::format("onw convert {}", gguf.string());
  Progress progress("converting", 0, Progress::Unit::bytes);
  return convert_once(gguf, models_folder(home_folder()), options, shown_on(progress));
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
  return convert(source, out, options, shown_on(progress));
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
