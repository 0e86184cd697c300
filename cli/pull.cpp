// onw pull: from the hub into the store.
#include "cli/pull.h"

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "base/file_lock.h"
#include "base/paths.h"
#include "base/terminal.h"
#include "cli/commands.h"
#include "cli/model.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "hub/local.h"
#include "hub/pull.h"
#include "hub/route.h"
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

// "owner/name", and nothing that looks like a place on this machine.
bool is_hub_id(const std::string& model) {
  const auto source = parse_source(model, Hub().endpoint);
  return source && source->repository == model && std::ranges::count(model, '/') == 1;
}

bool agrees_to_pull(const std::string& model, const Hub& hub) {
  if (!is_terminal(Stream::in) || !is_terminal(Stream::err)) return false;
  tell("{} is not on this machine. Pull it from {}? [y/N] ", model, without_secrets(hub.endpoint));
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

}  // namespace

Result<fs::path> pull_model(PullWish wish) {
  const Hub hub = Hub::from_environment();
  const auto source = parse_source(wish.source, hub.endpoint);
  RETURN_IF_ERROR(source);
  const auto out = store_folder(*source);
  const auto downloads = download_folder(home_folder(), *source);
  const auto lock = lock_for(downloads, wish.source);
  RETURN_IF_ERROR(lock);
  if (is_model_folder(out) && !wish.convert.replace) {
    tell("{} is here already. To bring it anew: onw pull {} --replace\n", out.string(), wish.source);
    return out;
  }
  const auto pulled = pull_with_progress({wish.source, wish.revision, wish.file, downloads}, hub);
  RETURN_IF_ERROR(pulled);
  auto& provenance = wish.convert.provenance;
  provenance.source = pulled->source;
  provenance.revision = pulled->revision;
  provenance.licence = pulled->licence;
  provenance.command = fmt::format("onw pull {}", wish.source);
  const auto converted = convert_with_progress(convertible(*pulled), out, wish.convert);
  RETURN_IF_ERROR(converted);
  std::error_code ignored;  // what is left over only takes room
  if (!wish.keep) fs::remove_all(pulled->folder, ignored);
  tell("{}: {}\n", out.string(), bytes_text(converted->bytes));
  return out;
}

Result<fs::path> locate_or_pull(const std::string& model) {
  auto folder = locate_model(model);
  if (folder || folder.error().code != Code::not_found || !is_hub_id(model)) return folder;
  if (!agrees_to_pull(model, Hub::from_environment())) return folder;
  return pull_model({.source = model});
}

Result<void> run_pull(const Args& args) {
  auto options = convert_options(args);
  RETURN_IF_ERROR(options);
  const auto folder = pull_model(
      {args.positional(0), args.text("--revision"), args.text("--file"), args.has("--keep"), std::move(*options)});
  RETURN_IF_ERROR(folder);
  tell("Talk to it: onw chat {}\n", model_name(*folder));
  return {};
}

}  // namespace onw::cli
