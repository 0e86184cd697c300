#include "targets/openvino/blob_store.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/output_file.h"
#include "graph/json.h"
#include "store/weight_file.h"
#include "targets/openvino/blob_files.h"

namespace onw::openvino {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

// Raised when the meaning of a record or of a key changes; a store of another version is made anew.
constexpr int kVersion = 1;

constexpr std::pair<Ended, std::string_view> kEnded[] = {{Ended::compiled, "compiled"},
                                                         {Ended::refused, "refused"},
                                                         {Ended::crashed, "crashed"},
                                                         {Ended::timed_out, "timed out"},
                                                         {Ended::out_of_memory, "out of memory"},
                                                         {Ended::unloadable, "does not load"}};

// The number behind `name="` from `at` on; moves `at` behind it.
std::optional<int64_t> number_after(std::string_view text, std::string_view name, size_t& at) {
  at = text.find(name, at);
  if (at == std::string_view::npos) return std::nullopt;
  at += name.size();
  int64_t value = 0;
  const auto read = std::from_chars(text.data() + at, text.data() + text.size(), value);
  if (read.ec != std::errc()) return std::nullopt;
  return value;
}

// The text into the digest, each constant of ours by its bytes.
void add_text(Digest& digest, std::string_view xml, const Constants& constants) {
  const int64_t files_end = constants.bytes() - static_cast<int64_t>(constants.memory().size());
  size_t done = 0;
  for (size_t at = 0;;) {
    const auto offset = number_after(xml, " offset=\"", at);
    const size_t begin = at;
    if (!offset) break;
    const auto size = number_after(xml, " size=\"", at);
    if (!size || *offset < files_end || *size < 0 || *offset + *size > constants.bytes()) continue;
    digest.add(xml.substr(done, begin - done));
    digest.add(
        sha256_hex(constants.memory().subspan(static_cast<size_t>(*offset - files_end), static_cast<size_t>(*size))));
    done = xml.find('"', begin);
  }
  digest.add(xml.substr(done));
}

ordered_json to_json(const BlobRecord& r) {
  ordered_json json = {{"version", kVersion},
                       {"model", r.model},
                       {"segment", r.segment},
                       {"rows", r.rows},
                       {"device", r.device},
                       {"platform", r.platform},
                       {"route", r.route},
                       {"openvino", r.openvino},
                       {"ended", name(r.ended)},
                       {"message", r.message},
                       {"seconds", r.seconds},
                       {"limit_seconds", r.limit_seconds},
                       {"free_bytes", r.free_bytes},
                       {"peak_bytes", r.peak_bytes},
                       {"tries", r.tries},
                       {"bytes", r.bytes},
                       {"sha256", r.digest},
                       {"model_folder", r.model_folder},
                       {"without_weights", r.without_weights}};
  if (r.self_check)
    json["self_check"] = {{"passed", r.self_check->passed},
                          {"rows", r.self_check->rows},
                          {"mean_kl", r.self_check->mean_kl},
                          {"same_first", r.self_check->same_first},
                          {"message", r.self_check->message},
                          {"device_seconds", r.self_check->device_seconds},
                          {"cpu_seconds", r.self_check->cpu_seconds},
                          {"device_prompt_seconds", r.self_check->device_prompt_seconds},
                          {"cpu_prompt_seconds", r.self_check->cpu_prompt_seconds}};
  return json;
}

// A check that is damaged is as good as none: it is made anew.
std::optional<BlobCheck> check_from_json(const nlohmann::json& json) {
  const auto rows = find_int(json, "rows"), same = find_int(json, "same_first");
  const auto kl = find_number(json, "mean_kl");
  constexpr int64_t kMostRows = 1024;
  if (!rows || !same || !kl || *rows < 1 || *rows > kMostRows || *same < 0 || *same > *rows) return std::nullopt;
  const auto seconds = [&](const char* key) {
    const double s = find_number(json, key).value_or(0);
    return s > 0 ? s : 0;
  };
  return BlobCheck{.passed = json.contains("passed") && json["passed"] == true,
                   .rows = static_cast<int>(*rows),
                   .mean_kl = *kl,
                   .same_first = static_cast<int>(*same),
                   .message = find_string(json, "message").value_or(""),
                   .device_seconds = seconds("device_seconds"),
                   .cpu_seconds = seconds("cpu_seconds"),
                   .device_prompt_seconds = seconds("device_prompt_seconds"),
                   .cpu_prompt_seconds = seconds("cpu_prompt_seconds")};
}

// A record is our own writing, but the disk is not ours alone: any value may be of another type, or nonsense.
std::optional<BlobRecord> from_json(const nlohmann::json& json) {
  if (!json.is_object() || find_int(json, "version") != kVersion) return std::nullopt;
  const auto ended =
      std::ranges::find(kEnded, find_string(json, "ended").value_or(""), &std::pair<Ended, std::string_view>::second);
  if (ended == std::end(kEnded)) return std::nullopt;
  const auto text = [&](const char* key) { return find_string(json, key).value_or(""); };
  const auto count = [&](const char* key) { return find_int(json, key).value_or(0); };
  const auto number = [&](const char* key) { return find_number(json, key).value_or(0); };
  BlobRecord r{.model = text("model"),
               .segment = text("segment"),
               .device = text("device"),
               .platform = text("platform"),
               .route = text("route"),
               .openvino = text("openvino"),
               .model_folder = text("model_folder"),
               .rows = count("rows"),
               .ended = ended->first,
               .message = text("message"),
               .seconds = number("seconds"),
               .limit_seconds = number("limit_seconds"),
               .free_bytes = count("free_bytes"),
               .peak_bytes = count("peak_bytes"),
               .tries = count("tries"),
               .without_weights = json.contains("without_weights") && json["without_weights"] == true,
               .bytes = count("bytes"),
               .digest = text("sha256")};
  if (r.rows < -1 || r.bytes < 0 || r.free_bytes < 0 || r.peak_bytes < 0 || r.tries < 0 || !(r.seconds >= 0) ||
      !(r.limit_seconds >= 0))
    return std::nullopt;
  if (const auto* check = find_object(json, "self_check")) r.self_check = check_from_json(*check);
  return r;
}

}  // namespace

std::string_view store_remedy(Code code) {
  return code == Code::no_space ? "Free space, or let ONW_CACHE name a folder with more"
                                : "Let ONW_CACHE name a folder that can be written";
}

std::string_view name(Ended ended) {
  return std::ranges::find(kEnded, ended, &std::pair<Ended, std::string_view>::first)->second;
}

std::string blob_key(const BlobInput& input) {
  Digest digest;
  const auto add = [&](std::string_view text) {
    digest.add(fmt::format("{}\n", text.size()));  // so that no two lists of texts are one
    digest.add(text);
  };
  add(fmt::format("{}", kVersion));
  add(input.weights_digest);
  add(input.openvino);
  add(input.device);
  for (const auto* list : {&input.device_facts, &input.properties}) {
    std::vector<std::pair<std::string, std::string>> sorted = *list;
    std::ranges::sort(sorted);
    add(fmt::format("{}", sorted.size()));
    for (const auto& [name, value] : sorted) {
      add(name);
      add(value);
    }
  }
  add_text(digest, input.xml, *input.constants);
  return digest.hex().substr(0, 32);
}

std::vector<std::pair<std::string, std::string>> blob_facts(const Runtime& runtime, const std::string& device) {
  constexpr std::string_view kFacts[] = {"FULL_DEVICE_NAME", "DEVICE_ARCHITECTURE", "NPU_DRIVER_VERSION",
                                         "NPU_COMPILER_VERSION"};
  std::vector<std::pair<std::string, std::string>> facts;
  for (const std::string_view fact : kFacts)
    if (const auto value = runtime.property(device, std::string(fact))) facts.emplace_back(fact, *value);
  return facts;
}

BlobStore::BlobStore(fs::path folder, int64_t cap_bytes) : folder_(std::move(folder)), cap_bytes_(cap_bytes) {}

fs::path BlobStore::file(const std::string& key, std::string_view extension) const {
  return folder_ / (key + std::string(extension));
}

fs::path BlobStore::partial(const std::string& key) const { return file(key, kPartial); }
fs::path BlobStore::partial_folder(const std::string& key) const { return file(key, kPartialFolder); }

std::optional<BlobRecord> BlobStore::find(const std::string& key) const {
  const fs::path path = file(key, kRecord);
  const auto json = read_json_file(path);
  if (!json) return std::nullopt;
  auto record = from_json(*json);
  if (!record) return std::nullopt;
  record->key = key;
  std::error_code failed;
  record->used = fs::last_write_time(path, failed);
  return record;
}

Result<MappedFile> BlobStore::open(const BlobRecord& record) const {
  auto blob = MappedFile::open(file(record.key, kBlob));
  RETURN_IF_ERROR(blob);
  if (static_cast<int64_t>(blob->bytes().size()) != record.bytes || sha256_hex(blob->bytes()) != record.digest)
    return error(Code::digest_mismatch, "{}: not the bytes that were written", blob->path().string());
  std::error_code ignored;  // a store that cannot be written is still a store
  fs::last_write_time(file(record.key, kRecord), fs::file_time_type::clock::now(), ignored);
  return blob;
}

Result<fs::path> BlobStore::open_folder(const BlobRecord& record) const {
  const fs::path folder = file(record.key, kFolder);
  const auto found = digest_folder(folder);
  RETURN_IF_ERROR(found);
  if (found->bytes != record.bytes || found->digest != record.digest)
    return error(Code::digest_mismatch, "{}: not the bytes that were written", folder.string());
  std::error_code ignored;
  fs::last_write_time(file(record.key, kRecord), fs::file_time_type::clock::now(), ignored);
  return folder;
}

Result<void> BlobStore::verify(const BlobRecord& record) const {
  if (record.without_weights) {
    RETURN_IF_ERROR(open_folder(record));
  } else {
    RETURN_IF_ERROR(open(record));
  }
  return {};
}

Result<FileLock> BlobStore::try_lock(const std::string& key) const {
  std::error_code failed;
  fs::create_directories(folder_, failed);
  if (failed) return error(Code::io, "{}: cannot make the folder: {}", folder_.string(), failed.message());
  return FileLock::try_acquire(file(key, kLock));
}

// While a record is written nobody takes what is half written for a leftover.
Result<FileLock> BlobStore::hold(const std::string& key) const {
  auto lock = FileLock::try_acquire(file(key, kLock));
  RETURN_IF_ERROR(lock);
  if (!lock->held()) return error(Code::io, "{}: somebody compiles {} just now", folder_.string(), key);
  return lock;
}

// The blob first: a record never tells of one that is not there. What is left of a kill between the two is a blob
// without a record, or with one that its bytes do not match: both are made anew.
Result<void> BlobStore::add(const BlobRecord& record) const {
  if (record.ended == Ended::compiled && record.without_weights) {
    const fs::path to = file(record.key, kFolder);
    std::error_code failed;
    fs::remove_all(to, failed);
    RETURN_IF_ERROR(rename_durably(partial_folder(record.key), to));
  } else if (record.ended == Ended::compiled) {
    RETURN_IF_ERROR(rename_durably(partial(record.key), file(record.key, kBlob)));
  }
  const fs::path path = file(record.key, kRecord);
  if (std::error_code failed; fs::is_directory(path, failed)) fs::remove_all(path, failed);  // nothing of ours
  return write_file_atomically(path, dump_json(to_json(record)));
}

Result<void> BlobStore::note_self_check(const std::string& key, const BlobCheck& check) const {
  const auto lock = hold(key);
  RETURN_IF_ERROR(lock);
  auto record = find(key);
  if (!record) return error(Code::not_found, "{}: no record of the compiled graph {}", folder_.string(), key);
  record->self_check = check;
  return write_file_atomically(file(key, kRecord), dump_json(to_json(*record)));
}

Result<void> BlobStore::note_unloadable(const std::string& key, const std::string& why) const {
  const auto lock = hold(key);
  RETURN_IF_ERROR(lock);
  auto record = find(key);
  if (!record) return error(Code::not_found, "{}: no record of the compiled graph {}", folder_.string(), key);
  record->ended = Ended::unloadable;
  record->message = why;
  record->bytes = 0;
  record->self_check.reset();
  RETURN_IF_ERROR(write_file_atomically(file(key, kRecord), dump_json(to_json(*record))));
  std::error_code ignored;
  fs::remove(file(key, kBlob), ignored);
  fs::remove_all(file(key, kFolder), ignored);
  return {};
}

void BlobStore::remove(const std::string& key) const {
  std::error_code ignored;
  for (const std::string_view extension : {kRecord, kBlob, kPartial}) fs::remove(file(key, extension), ignored);
  for (const std::string_view extension : {kFolder, kPartialFolder}) fs::remove_all(file(key, extension), ignored);
}

Result<std::vector<BlobRecord>> BlobStore::entries() const {
  std::vector<BlobRecord> found;
  std::error_code failed;
  if (!fs::exists(folder_, failed)) return found;
  fs::directory_iterator items(folder_, failed);
  if (failed) return error(Code::io, "{}: cannot be read: {}", folder_.string(), failed.message());
  for (const auto& item : items)
    if (item.path().extension() == kRecord)
      if (auto record = find(item.path().stem().string())) found.push_back(std::move(*record));
  std::ranges::sort(found, std::ranges::greater(), &BlobRecord::used);
  return found;
}

}  // namespace onw::openvino
