#include "hub/listing.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "hub/source.h"

namespace onw {
namespace {

using nlohmann::json;

constexpr int kDepth = 64;
constexpr size_t kNamesShown = 20;

// JSON from outside: an object, not nested deeper than kDepth.
Result<json> parse_object(std::string_view text, std::string_view what) {
  bool too_deep = false;
  const auto watch = [&](int depth, json::parse_event_t, json&) { return !(too_deep = too_deep || depth > kDepth); };
  json parsed = json::parse(text, watch, false);
  if (too_deep) return error(Code::bad_format, "{}: nested deeper than {}", what, kDepth);
  if (!parsed.is_object())
    return error(Code::bad_format, "{}: not a JSON object. Is HF_ENDPOINT the address of a hub?", what);
  return parsed;
}

std::string text_at(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

int64_t bytes_at(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() && *found >= 0 ? found->get<int64_t>() : -1;
}

bool is_hex(std::string_view text, size_t digits) {
  return text.size() == digits &&
         std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

Result<HubFile> parse_file(const json& entry) {
  if (!entry.is_object()) return error(Code::bad_format, "the hub's list of files holds something that is no file");
  HubFile file{text_at(entry, "rfilename"), bytes_at(entry, "size"), "", ""};
  RETURN_IF_ERROR(check_file_name(file.name));
  if (const auto blob = text_at(entry, "blobId"); is_hex(blob, 40)) file.git_sha1 = blob;
  if (const auto lfs = entry.find("lfs"); lfs != entry.end() && lfs->is_object()) {
    if (const auto digest = text_at(*lfs, "sha256"); is_hex(digest, 64)) file.sha256 = digest;
    if (const auto bytes = bytes_at(*lfs, "size"); bytes >= 0) file.bytes = bytes;
    file.git_sha1.clear();  // that of the pointer
  }
  return file;
}

bool in_root(const HubFile& file) { return file.name.find('/') == std::string::npos; }

bool is_companion(const HubFile& file) {
  if (!in_root(file)) return file.name.starts_with("additional_chat_templates/") && file.name.ends_with(".jinja");
  for (const auto* ending : {".json", ".jinja", ".txt", ".model"})
    if (file.name.ends_with(ending)) return true;
  return file.name.starts_with("LICENSE");
}

std::vector<HubFile> with_ending(const HubListing& listing, std::string_view ending) {
  std::vector<HubFile> found;
  for (const auto& file : listing.files)
    if (file.name.ends_with(ending)) found.push_back(file);
  return found;
}

const HubFile* find(std::span<const HubFile> files, std::string_view name) {
  const auto found = std::ranges::find(files, name, &HubFile::name);
  return found == files.end() ? nullptr : &*found;
}

std::string names(std::span<const HubFile> files) {
  std::string text;
  for (size_t i = 0; i < std::min(files.size(), kNamesShown); ++i) text += (i == 0 ? "" : ", ") + files[i].name;
  return files.size() > kNamesShown ? text + fmt::format(", and {} more", files.size() - kNamesShown) : text;
}

// The GGUF file of a repository that has no safetensors weights.
Result<std::vector<HubFile>> choose_gguf(const HubListing& listing) {
  auto models = with_ending(listing, ".gguf");
  std::erase_if(models, [](const HubFile& f) { return f.name.find("mmproj") != f.name.npos; });
  if (models.empty())
    return error(Code::unsupported, "{}: no weights that onw reads (.safetensors or .gguf). It has: {}",
                 listing.repository, names(listing.files));
  if (models.size() > 1)
    return error(Code::invalid_argument, "{} has several models. Choose one with --file: {}", listing.repository,
                 names(models));
  return models;
}

// The safetensors weights to take: the index, or model.safetensors, or the only one; none where there are none.
Result<std::vector<HubFile>> choose_safetensors(const HubListing& listing) {
  auto weights = with_ending(listing, ".safetensors");
  std::erase_if(weights, [](const HubFile& f) { return !in_root(f); });
  if (const auto* index = find(listing.files, kShardIndex)) return std::vector<HubFile>{*index};
  if (const auto* whole = find(weights, "model.safetensors")) return std::vector<HubFile>{*whole};
  if (weights.size() > 1)
    return error(Code::invalid_argument, "{} has several weight files and no index. Choose one with --file: {}",
                 listing.repository, names(weights));
  return weights;
}

}  // namespace

Result<HubListing> parse_listing(std::string_view text) {
  auto parsed = parse_object(text, "the hub's answer");
  RETURN_IF_ERROR(parsed);
  HubListing listing{text_at(*parsed, "id"), text_at(*parsed, "sha"), "", {}};
  if (const auto card = parsed->find("cardData"); card != parsed->end() && card->is_object())
    listing.licence = text_at(*card, "license");
  const auto siblings = parsed->find("siblings");
  if (siblings == parsed->end() || !siblings->is_array())
    return error(Code::bad_format, "the hub's answer lists no files. Is HF_ENDPOINT the address of a hub?");
  for (const auto& entry : *siblings) {
    auto file = parse_file(entry);
    RETURN_IF_ERROR(file);
    listing.files.push_back(std::move(*file));
  }
  return listing;
}

Result<std::vector<HubFile>> choose_files(const HubListing& listing, std::string_view only) {
  if (!only.empty()) {
    const auto* file = find(listing.files, only);
    if (file == nullptr)
      return error(Code::not_found, "{} has no file '{}'. It has: {}", listing.repository, only, names(listing.files));
    return std::vector<HubFile>{*file};
  }
  auto weights = choose_safetensors(listing);
  RETURN_IF_ERROR(weights);
  if (weights->empty()) return choose_gguf(listing);
  std::vector<HubFile> chosen;
  for (const auto& file : listing.files)
    if (is_companion(file) && file.name != weights->front().name) chosen.push_back(file);
  chosen.insert(chosen.end(), weights->begin(), weights->end());
  return chosen;
}

Result<std::vector<HubFile>> choose_shards(const HubListing& listing, std::string_view index) {
  auto parsed = parse_object(index, kShardIndex);
  RETURN_IF_ERROR(parsed);
  const auto map = parsed->find("weight_map");
  if (map == parsed->end() || !map->is_object() || map->empty())
    return error(Code::bad_format, "{}: no weight_map", kShardIndex);
  std::set<std::string> wanted;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string()) return error(Code::bad_format, "{}: '{}' names no file", kShardIndex, tensor);
    wanted.insert(shard.get<std::string>());
  }
  std::vector<HubFile> shards;
  for (const auto& name : wanted) {
    const auto* file = find(listing.files, name);
    if (file == nullptr)
      return error(Code::not_found, "{}: '{}' is named by {}, and not there", listing.repository, name, kShardIndex);
    shards.push_back(*file);
  }
  return shards;
}

}  // namespace onw
