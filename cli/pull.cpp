// onw pull: from the hub into the store.
#include "hub/pull.h"

#include <filesystem>

#include "base/file_lock.h"
#include "base/paths.h"
#include "cli/commands.h"
#include "cli/model.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "hub/local.h"
#include "store/model_folder.h"

namespace onw::cli {
namespace {

namespace fs = std::filesystem;

fs::path store_folder(const HubSource& source) {
  const auto models = models_folder(home_folder());
  if (!source.repository.empty()) return models / fs::path(source.repository);
  return models / "local" / fs::path(source.url).stem();
}

// What convert reads: the folder, or the one .gguf file in it.
fs::path convertible(const Pulled& pulled) {
  for (const auto& file : pulled.files)
    if (fs::path(file.name).extension() == ".gguf") return pulled.folder / file.name;
  return pulled.folder;
}

Result<Pulled> pull_with_progress(const PullRequest& request, Hub hub) {
  Progress progress("downloading", 0, Progress::Unit::bytes);
  hub.patience.retrying = [&progress](std::string_view what) { progress.say(what); };
  return pull(request, hub, [&](const PullProgress& p) {
    progress.update(p.done, p.total);
    return true;
  });
}

// Held from the first byte to the finished model: of two pulls of one model the second waits, and finds it done.
Result<FileLock> lock_for(const fs::path& downloads, std::string_view what) {
  std::error_code ignored;  // the lock itself says what is wrong
  fs::create_directories(downloads.parent_path(), ignored);
  const fs::path path = downloads.string() + ".lock";
  auto lock = FileLock::try_acquire(path);
  if (!lock || lock->held()) return lock;
  tell("{} is being pulled by another onw: waiting for it\n", what);
  return FileLock::acquire(path);
}

}  // namespace

Result<void> run_pull(const Args& args) {
  const Hub hub = Hub::from_environment();
  const auto source = parse_source(args.positional(0), hub.endpoint);
  RETURN_IF_ERROR(source);
  auto options = convert_options(args);
  RETURN_IF_ERROR(options);
  const auto out = store_folder(*source);
  const auto downloads = download_folder(home_folder(), *source);
  const auto lock = lock_for(downloads, args.positional(0));
  RETURN_IF_ERROR(lock);
  if (is_model_folder(out) && !options->replace) {
    tell("{} is here already. To bring it anew: onw pull {} --replace\n", out.string(), args.positional(0));
    return {};
  }
  const PullRequest request{.source = args.positional(0),
                            .revision = args.text("--revision"),
                            .file = args.text("--file"),
                            .into = downloads};
  const auto pulled = pull_with_progress(request, hub);
  RETURN_IF_ERROR(pulled);
  options->provenance.source = pulled->source;
  options->provenance.revision = pulled->revision;
  options->provenance.licence = pulled->licence;
  options->provenance.command = fmt::format("onw pull {}", args.positional(0));
  const auto converted = convert_with_progress(convertible(*pulled), out, *options);
  RETURN_IF_ERROR(converted);
  std::error_code ignored;  // what is left over only takes room
  if (!args.has("--keep")) fs::remove_all(pulled->folder, ignored);
  tell("{}: {}. Talk to it: onw chat {}\n", out.string(), bytes_text(converted->bytes),
       fs::relative(out, models_folder(home_folder())).string());
  return {};
}

}  // namespace onw::cli
