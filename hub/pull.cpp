#include "hub/pull.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "hub/http.h"
#include "hub/listing.h"
#include "hub/route.h"

namespace onw {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLargestListing = 64 << 20;
constexpr int64_t kSpareBytes = 64 << 20;  // left free on the disk

using Report = std::function<bool(const PullProgress&)>;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The hub's answer about a repository, tried again where that may help.
Result<std::string> get_listing(const Hub& hub, const std::string& url, const std::string& what, const Report& report) {
  const auto go_on = [&] { return !report || report({what, 0, 0}); };
  for (int failures = 1;; ++failures) {
    std::string text;
    const auto collect = [&](const HttpResponse&, std::string_view piece) {
      text += piece;
      return text.size() <= kLargestListing;
    };
    const auto response = http_get({url, hub.token, 0, hub.patience.stall_seconds}, collect, go_on);
    if (response && response->status < 400) return text;
    if (text.size() > kLargestListing)
      return error(Code::bad_format, "{}: the hub's answer is over {} bytes", what, kLargestListing);
    const bool may_pass = response ? status_may_pass(response->status) : response.error().may_pass;
    Error failed =
        response ? http_status_error(*response, what, !hub.token.empty())
                 : Error{response.error().error.code, fmt::format("{}: {}", what, response.error().error.message)};
    if (!may_pass || failures >= hub.patience.tries) return Failure(std::move(failed));
    const double wait =
        std::min(hub.patience.first_wait_seconds * static_cast<double>(1 << std::min(failures - 1, 10)), 60.0);
    if (hub.patience.retrying) hub.patience.retrying(retry_text(hub.patience, failures, wait, failed.message));
    std::this_thread::sleep_for(std::chrono::duration<double>(wait));
  }
}

// Where a file lands. A link on the way would lead out of the folder.
Result<fs::path> target_of(const fs::path& folder, const std::string& name) {
  fs::path path = folder;
  std::error_code ignored;
  for (const auto& part : fs::path(name)) {
    if (path != folder && fs::is_symlink(path, ignored))
      return error(Code::io,
                   "{} is a symbolic link, through which nothing is written. Remove it, or pull into another folder",
                   path.string());
    path /= part;
  }
  return path;
}

class Pull {
 public:
  Pull(const Hub& hub, const Report& report, fs::path folder) : hub_(hub), report_(report) {
    pulled_.folder = std::move(folder);
  }

  Result<Pulled> repository(const HubSource& source);
  Result<Pulled> file(const HubSource& source);

 private:
  Result<void> add(const std::vector<HubFile>& files);
  Result<void> require_space(const std::vector<HubFile>& missing) const;
  Result<void> fetch(const HubFile& file);
  Result<void> write_note() const;
  Download download_of(const HubFile& file) const;

  const Hub& hub_;
  const Report& report_;
  Pulled pulled_;
  int64_t done_ = 0;
  int64_t total_ = 0;
};

Download Pull::download_of(const HubFile& file) const {
  const bool elsewhere = pulled_.revision.empty();
  const auto url = elsewhere ? pulled_.source
                             : fmt::format("{}/{}/resolve/{}/{}", hub_.endpoint, pulled_.source,
                                           encode_path(pulled_.revision), encode_path(file.name));
  return {file.name,   url,          elsewhere ? "" : hub_.token, pulled_.folder / file.name, file.bytes,
          file.sha256, file.git_sha1};
}

Result<void> Pull::require_space(const std::vector<HubFile>& missing) const {
  int64_t needed = 0;
  for (const auto& file : missing) {
    std::error_code none;
    const auto part = fs::file_size((pulled_.folder / file.name).string() + ".part", none);
    needed += std::max<int64_t>(0, file.bytes - (none ? 0 : static_cast<int64_t>(part)));
  }
  std::error_code failed;
  const auto space = fs::space(pulled_.folder, failed);
  if (failed || needed == 0 || static_cast<int64_t>(space.available) >= needed + kSpareBytes) return {};
  return error(Code::no_space,
               "{}: {:.1f} GB are to come, and {} has {:.1f} GB free. Make room, or set ONW_HOME to another disk",
               pulled_.source, 1e-9 * static_cast<double>(needed), pulled_.folder.string(),
               1e-9 * static_cast<double>(space.available));
}

Result<void> Pull::fetch(const HubFile& file) {
  auto target = target_of(pulled_.folder, file.name);
  RETURN_IF_ERROR(target);
  const auto progress = [&](int64_t done) { return !report_ || report_({file.name, done_ + done, total_}); };
  const auto what = download_of(file);
  auto downloaded = download(what, hub_.patience, progress);
  RETURN_IF_ERROR(downloaded);
  pulled_.files.push_back({file.name, downloaded->bytes, downloaded->sha256});
  pulled_.downloaded_bytes += downloaded->bytes;
  done_ += downloaded->bytes;
  return {};
}

// Downloads those of `files` that are not there yet.
Result<void> Pull::add(const std::vector<HubFile>& files) {
  std::vector<HubFile> missing;
  for (const auto& file : files) {
    total_ += std::max<int64_t>(0, file.bytes);
    if (const auto what = download_of(file); !is_complete(what, what.target)) {
      missing.push_back(file);
      continue;
    }
    done_ += file.bytes;
    pulled_.files.push_back({file.name, file.bytes, file.sha256});
  }
  RETURN_IF_ERROR(require_space(missing));
  std::error_code ignored;
  if (!missing.empty()) fs::remove(pulled_.folder / kPulledNote, ignored);  // until all is there
  for (const auto& file : missing) RETURN_IF_ERROR(fetch(file));
  return {};
}

Result<void> Pull::write_note() const {
  auto files = nlohmann::json::array();
  for (const auto& file : pulled_.files)
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  const nlohmann::json note = {
      {"source", pulled_.source}, {"revision", pulled_.revision}, {"licence", pulled_.licence}, {"files", files}};
  const auto path = pulled_.folder / kPulledNote;
  const auto part = path.string() + ".part";
  {
    std::ofstream out(part, std::ios::binary | std::ios::trunc);
    out << note.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
    if (!out.flush()) return error(Code::no_space, "cannot write {}. Is the disk full?", part);
  }
  std::error_code failed;
  fs::rename(part, path, failed);
  if (failed) return error(Code::io, "cannot rename {}: {}", part, failed.message());
  return {};
}

Result<Pulled> Pull::repository(const HubSource& source) {
  pulled_.source = source.repository;
  const auto url = fmt::format("{}/api/models/{}/revision/{}?blobs=true", hub_.endpoint, source.repository,
                               encode_path(source.revision));
  const auto what = source.revision == "main" ? source.repository : source.repository + "@" + source.revision;
  auto text = get_listing(hub_, url, what, report_);
  RETURN_IF_ERROR(text);
  auto listing = parse_listing(*text);
  if (!listing) return failure(std::move(listing), source.repository);
  listing->repository = source.repository;
  pulled_.revision = listing->revision.empty() ? source.revision : listing->revision;
  pulled_.licence = listing->licence;
  auto files = choose_files(*listing, source.file);
  RETURN_IF_ERROR(files);
  RETURN_IF_ERROR(add(*files));
  if (files->back().name == kShardIndex && source.file.empty()) {
    std::ifstream in(pulled_.folder / kShardIndex, std::ios::binary);
    auto shards = choose_shards(*listing, std::string(std::istreambuf_iterator<char>(in), {}));
    RETURN_IF_ERROR(shards);
    RETURN_IF_ERROR(add(*shards));
  }
  RETURN_IF_ERROR(write_note());
  return std::move(pulled_);
}

Result<Pulled> Pull::file(const HubSource& source) {
  pulled_.source = source.url;
  RETURN_IF_ERROR(add({{source.file, -1, "", ""}}));
  RETURN_IF_ERROR(write_note());
  return std::move(pulled_);
}

}  // namespace

Hub Hub::from_environment() {
  Hub hub;
  if (const auto endpoint = environment("HF_ENDPOINT"); !endpoint.empty()) {
    hub.endpoint = endpoint;
    hub.endpoint_is_set = true;
  }
  while (hub.endpoint.ends_with('/')) hub.endpoint.pop_back();
  hub.token = environment("HF_TOKEN");
  return hub;
}

Result<Pulled> pull(const PullRequest& request, const Hub& hub, const Report& progress) {
  auto source = parse_source(request.source, hub.endpoint);
  RETURN_IF_ERROR(source);
  if (!request.revision.empty()) source->revision = request.revision;
  if (source->revision.empty()) source->revision = "main";
  if (!request.file.empty() && !source->repository.empty()) source->file = request.file;
  std::error_code failed;
  fs::create_directories(request.into, failed);
  if (failed) return error(Code::io, "cannot make {}: {}", request.into.string(), failed.message());
  Pull work(hub, progress, request.into);
  auto pulled = source->repository.empty() ? work.file(*source) : work.repository(*source);
  if (!pulled && hub.endpoint_is_set && !source->repository.empty() &&
      (pulled.error().code == Code::network || pulled.error().code == Code::not_found))
    pulled.error().message += fmt::format(". The hub is {}, as HF_ENDPOINT says", without_secrets(hub.endpoint));
  return pulled;
}

Result<Pulled> read_pulled(const fs::path& folder) {
  const auto path = folder / kPulledNote;
  std::ifstream in(path, std::ios::binary);
  if (!in) return error(Code::not_found, "{} was not pulled whole: it has no {}", folder.string(), kPulledNote);
  const auto note = nlohmann::json::parse(in, nullptr, false);
  const auto text = [](const nlohmann::json& object, const char* key) {
    return object.is_object() && object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "";
  };
  if (!note.is_object() || !note.contains("files") || !note["files"].is_array())
    return error(Code::bad_format, "{} is damaged. Pull the model again", path.string());
  Pulled pulled{folder, text(note, "source"), text(note, "revision"), text(note, "licence"), {}, 0};
  for (const auto& file : note["files"]) {
    const bool sized = file.is_object() && file.contains("bytes") && file["bytes"].is_number_integer();
    pulled.files.push_back({text(file, "name"), sized ? file["bytes"].get<int64_t>() : 0, text(file, "sha256")});
  }
  return pulled;
}

fs::path download_folder(const fs::path& home, const HubSource& source) {
  std::string name = source.repository;
  if (name.empty()) {
    const auto host = source.url.substr(source.url.find("://") + 3);
    name = host.substr(0, host.find_first_of("/:?#")) + "/" + source.file;
  }
  for (size_t at; (at = name.find('/')) != name.npos;) name.replace(at, 1, "--");
  return home / "downloads" / name;
}

}  // namespace onw
