#include "convert/stop_ids.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/lfs_pointer.h"
#include "base/mapped_file.h"
#include "graph/json.h"

namespace onw {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// gpt-oss's <|end|> is missing on purpose: it ends a message, not the answer. Behind <|tool_response> Gemma 4 waits for
// what the tool says.
constexpr std::array<std::string_view, 11> kTurnEnds = {
    "<|im_end|>", "<|eot_id|>",      "<|eom_id|>",    "<end_of_turn>",    "<turn|>", "<|return|>",
    "<|call|>",   "<|end_of_text|>", "<|endoftext|>", "<|tool_response>", "</s>"};

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

std::string read_text(const fs::path& path) {
  const auto file = MappedFile::open(path);
  return file ? std::string(text_of(*file)) : std::string();
}

// "chat_template": a string, or a list of {name, template}.
std::string template_in(const json& object) {
  const auto it = object.is_object() ? object.find("chat_template") : object.end();
  if (it == object.end()) return {};
  if (it->is_string()) return it->get<std::string>();
  if (!it->is_array()) return {};
  std::string first;
  for (const json& entry : *it) {
    const auto text = find_string(entry, "template");
    if (!text) continue;
    if (find_string(entry, "name") == "default") return *text;
    if (first.empty()) first = *text;
  }
  return first;
}

}  // namespace

Result<std::map<std::string, int64_t>> added_tokens(const fs::path& tokenizer_json) {
  const auto file = MappedFile::open(tokenizer_json);
  RETURN_IF_ERROR(file);
  if (is_lfs_pointer(file->bytes()))
    return error(Code::bad_format, "{}: a Git LFS pointer, not the file. Fetch the real one: git lfs pull, or onw pull",
                 tokenizer_json.string());
  const std::string_view text = text_of(*file);
  // The vocabulary (at "model") is dropped while parsing: as a tree it would take hundreds of megabytes.
  bool too_deep = false;
  const auto keep = [&](int depth, json::parse_event_t event, json& value) {
    too_deep = too_deep || depth > kMaxJsonDepth;
    return !too_deep && !(event == json::parse_event_t::key && depth == 1 && value != "added_tokens");
  };
  const json root = json::parse(text.begin(), text.end(), keep, /*allow_exceptions=*/false);
  if (root.is_discarded() || too_deep)
    return error(Code::bad_format, "{}: not valid JSON. Download it again", tokenizer_json.string());
  std::map<std::string, int64_t> tokens;
  const auto list = root.is_object() ? root.find("added_tokens") : root.end();
  if (list == root.end() || !list->is_array()) return tokens;
  for (const json& token : *list) {
    const auto content = find_string(token, "content");
    const auto id = find_int(token, "id");
    if (content && id) tokens[*content] = *id;
  }
  return tokens;
}

bool is_turn_end(std::string_view token) { return std::ranges::find(kTurnEnds, token) != kTurnEnds.end(); }

Result<std::set<int64_t>> collect_stop_ids(const StopSources& s) {
  std::set<int64_t> ids;
  const std::pair<const json*, const char*> named[] = {
      {s.generation_config, "generation_config.json"},
      {s.config, "config.json"},
      {s.config == nullptr ? nullptr : find_object(*s.config, "text_config"), "config.json, text_config"}};
  for (const auto& [object, where] : named) {
    if (object == nullptr) continue;
    const auto read = read_ints(*object, "eos_token_id", where);
    RETURN_IF_ERROR(read);
    for (const int64_t id : *read)
      if (id >= 0) ids.insert(id);
  }
  if (s.tokens == nullptr) return ids;
  const auto add_token = [&](std::string_view text) {
    if (const auto it = s.tokens->find(std::string(text)); it != s.tokens->end()) ids.insert(it->second);
  };
  if (s.tokenizer_config != nullptr) {
    const json eos = s.tokenizer_config->value("eos_token", json());
    const auto text = eos.is_string() ? eos.get<std::string>() : find_string(eos, "content");
    if (!eos.is_null() && !text)
      return wrong_type("tokenizer_config.json", "eos_token", eos, R"(a text or {"content": a text})");
    add_token(text.value_or(""));
  }
  for (const std::string_view end : kTurnEnds)
    if (s.chat_template.find(end) != std::string_view::npos) add_token(end);
  return ids;
}

std::string read_chat_template(const fs::path& folder, const json& tokenizer_config) {
  if (std::string jinja = read_text(folder / "chat_template.jinja"); !jinja.empty()) return jinja;
  if (const auto file = read_json_file(folder / "chat_template.json"))
    if (std::string text = template_in(*file); !text.empty()) return text;
  return template_in(tokenizer_config);
}

}  // namespace onw
