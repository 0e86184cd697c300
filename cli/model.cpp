#include "cli/model.h"

#include <memory>

#include "base/paths.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/text_side.h"
#include "convert/convert_once.h"
#include "hub/local.h"
#include "store/model_folder.h"

namespace onw::cli {
namespace {

namespace fs = std::filesystem;

// Progress on stderr, with a first word about what is done.
class ConvertLog {
 public:
  explicit ConvertLog(std::string what) : what_(std::move(what)) {}

  bool operator()(const ConvertProgress& p) {
    if (!progress_) {
      if (!what_.empty()) tell("{}\n", what_);
      if (p.bytes_kept > 0) tell("Going on behind {} of an earlier run\n", bytes_text(p.bytes_kept));
      progress_ = std::make_shared<Progress>("converting", 0, Progress::Unit::bytes);
    }
    progress_->update(p.bytes_done, p.bytes_total);
    return true;
  }

 private:
  std::string what_;
  std::shared_ptr<Progress> progress_;
};

// Tells of a text side that is not there; refuses one that does not load.
Result<void> check_published_text(const fs::path& folder, int64_t vocabulary) {
  const auto text = check_text_side(folder, vocabulary);
  RETURN_IF_ERROR(text);
  if (!text->tokenizer) tell("No tokenizer.json: bench and eval --ids can run this model, chat and serve cannot\n");
  return {};
}

Result<fs::path> converted(const fs::path& published) {
  ConvertOptions options;
  options.check_text = check_published_text;
  options.waiting = [&published] {
    tell("{} is being converted by another onw: waiting for it\n", published.string());
  };
  options.provenance.command = fmt::format("onw convert {}", published.string());
  return convert_once(published, models_folder(home_folder()), options,
                      ConvertLog(fmt::format("Converting {} into the store, once", published.string())));
}

}  // namespace

Result<fs::path> locate_model(const std::string& model) {
  std::error_code none;
  const fs::path path(model);
  if (fs::is_directory(path, none)) {
    if (is_model_folder(path)) return path;
    if (fs::exists(path / "config.json", none)) return converted(path);
    return error(Code::not_found,
                 "{}: a folder without a model (neither engine.json nor config.json is in it). Name the folder of a "
                 "converted or a published model, or fetch one: onw pull",
                 model);
  }
  if (path.extension() == ".gguf") {
    if (fs::is_regular_file(path, none)) return converted(path);
    return error(Code::not_found, "{}: no such file", model);
  }
  auto local = find_model(models_folder(home_folder()), model);
  if (!local) return failure(std::move(local));
  return local->folder;
}

Result<fs::path> locate_tokenizer(const std::string& model) {
  std::error_code none;
  if (fs::exists(fs::path(model) / "tokenizer.json", none)) return fs::path(model);
  return locate_model(model);
}

std::string model_name(const fs::path& folder) {
  std::error_code none;
  const auto inside = fs::relative(folder, models_folder(home_folder()), none);
  if (!none && !inside.empty() && *inside.begin() != "..") return inside.generic_string();
  const auto full = fs::weakly_canonical(folder, none);
  return (none ? folder : full).filename().string();
}

Result<ConvertSummary> convert_with_progress(const fs::path& source, const fs::path& out,
                                             const ConvertOptions& options) {
  return convert(source, out, options, ConvertLog(""));
}

bool is_published(const fs::path& path) {
  std::error_code none;
  if (path.extension() == ".gguf") return fs::is_regular_file(path, none);
  return fs::is_directory(path, none) && !is_model_folder(path) && fs::exists(path / "config.json", none);
}

Result<ConvertOptions> convert_options(const Args& args) {
  ConvertOptions options;
  options.check_text = check_published_text;
  options.made_for = args.text("--for");
  options.replace = args.has("--replace");
  options.residual_shift = static_cast<int>(args.integer("--residual-shift").value_or(0));
  options.importance = args.text("--importance");
  if (!args.has("--format")) return options;
  const auto format = parse_format_option(args.text("--format"));
  RETURN_IF_ERROR(format);
  options.format = *format;
  return options;
}

}  // namespace onw::cli
