#include "targets/openvino/blob_store.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/output_file.h"
#include "graph/json.h"
#include "store/weight_file.h"

namespace onw::openvino {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

// Raised when the meaning of a record or of a key changes; a store of another version is made anew.
constexpr int kVersion = 1;

constexpr std::string_view kBlob = ".blob", kRecord = ".json", kPartial = ".partial", kLock = ".lock";

constexpr std::pair<Ended, std::string_view> kEnded[] = {{Ended::compiled, "compiled"},
                                                         {Ended::refused, "refused"},
                                                         {Ended::crashed, "crashed"},
                                                         {Ended::timed_out, "timed out"},
                                                         {Ended::out_of_memory, "out of memory"}};

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
  ordered_json json = {{"version", kVersion},        {"model", r.model},
                       {"segment", r.segment},       {"rows", r.rows},
                       {"device", r.device},         {"platform", r.platform},
                       {"route", r.route},           {"openvino", r.openvino},
                       {"ended", name(r.ended)},     {"message", r.message},
                       {"seconds", r.seconds},       {"limit_seconds", r.limit_seconds},
                       {"free_bytes", r.free_bytes}, {"bytes", r.bytes},
                       {"sha256", r.digest}};
  if (r.self_check)
    json["self_check"] = {{"passed", r.self_check->passed},
                          {"mean_kl", r.self_check->mean_kl},
                          {"top1", r.self_check->top1},
                          {"message", r.self_check->message}};
  return json;
}

// A record is our own writing, but the disk is not ours alone: any value may be of another type.
std::optional<BlobRecord> from_json(const nlohmann::json& json) {
  if (!json.is_object() || find_int(json, "version") != kVersion) return std::nullopt;
  const auto ended =
      std::ranges::find(kEnded, find_string(json, "ended").value_or(""), &std::pair<Ended, std::string_view>::second);
  if (ended == std::end(kEnded)) return std::nullopt;
  const auto text = [&](const char* key) { return find_string(json, key).value_or(""); };
  const auto number = [](const nlohmann::json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_number() ? found->get<double>() : 0.0;
  };
  BlobRecord r{.model = text("model"),
               .segment = text("segment"),
               .device = text("device"),
               .platform = text("platform"),
               .route = text("route"),
               .openvino = text("openvino"),
               .rows = find_int(json, "rows").value_or(0),
               .ended = ended->first,
               .message = text("message"),
               .seconds = number(json, "seconds"),
               .limit_seconds = number(json, "limit_seconds"),
               .free_bytes = find_int(json, "free_bytes").value_or(0),
               .bytes = find_int(json, "bytes").value_or(0),
               .digest = text("sha256")};
  if (const auto* check = find_object(json, "self_check"))
    r.self_check = {.passed = check->contains("passed") && (*check)["passed"] == true,
                    .mean_kl = number(*check, "mean_kl"),
                    .top1 = number(*check, "top1"),
                    .message = find_string(*check, "message").value_or("")};
  return r;
}

}  // namespace

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

Result<FileLock> BlobStore::try_lock(const std::string& key) const {
  std::error_code failed;
  fs::create_directories(folder_, failed);
  if (failed) return error(Code::io, "{}: cannot make the folder: {}", folder_.string(), failed.message());
  return FileLock::try_acquire(file(key, kLock));
}

// The blob first: a record never tells of one that is not there. What is left of a kill between the two is a blob
// without a record, or with one that its bytes do not match: both are made anew.
Result<void> BlobStore::add(const BlobRecord& record) const {
  if (record.ended == Ended::compiled) RETURN_IF_ERROR(rename_durably(partial(record.key), file(record.key, kBlob)));
  return write_file_atomically(file(record.key, kRecord), dump_json(to_json(record)));
}

Result<void> BlobStore::note_self_check(const std::string& key, const SelfCheck& check) const {
  auto record = find(key);
  if (!record) return error(Code::not_found, "{}: no record of the compiled graph {}", folder_.string(), key);
  record->self_check = check;
  return write_file_atomically(file(key, kRecord), dump_json(to_json(*record)));
}

void BlobStore::remove(const std::string& key) const {
  std::error_code ignored;
  for (const std::string_view extension : {kRecord, kBlob, kPartial}) fs::remove(file(key, extension), ignored);
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

Result<int64_t> BlobStore::prune(int64_t keep_bytes) const {
  const auto all = entries();
  RETURN_IF_ERROR(all);
  int64_t kept = 0, freed = 0;
  std::vector<std::string> known;
  for (const BlobRecord& record : *all) {
    if (record.ended != Ended::compiled || kept + record.bytes <= keep_bytes) {
      kept += record.bytes;
      known.push_back(record.key);
      continue;
    }
    remove(record.key);
    freed += record.bytes;
  }
  // What belongs to no record, unless somebody is just writing it.
  std::error_code failed;
  std::vector<fs::path> rest;
  for (const auto& item : fs::directory_iterator(folder_, failed)) rest.push_back(item.path());
  for (const fs::path& path : rest) {
    const std::string key = path.stem().string();
    const bool of_ours = path.extension() == kBlob || path.extension() == kPartial || path.extension() == kRecord;
    if (!of_ours || (path.extension() != kPartial && std::ranges::find(known, key) != known.end())) continue;
    const auto lock = FileLock::try_acquire(file(key, kLock));
    if (!lock || !lock->held()) continue;
    if (path.extension() != kPartial && find(key)) continue;  // written in the meantime
    const auto bytes = static_cast<int64_t>(fs::file_size(path, failed));
    if (fs::remove(path, failed) && !failed) freed += bytes;
  }
  return freed;
}

}  // namespace onw::openvino
