#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "text/clock.h"
#include "text/folder_text.h"
#include "text/json_limits.h"
#include "text/native_call.h"
#include "text/render_request.h"
#include "text/text.h"

namespace onw {

using nlohmann::json;

namespace {

extern "C" ptrdiff_t write_time(const char* now, size_t now_size, const char* format, size_t format_size, char* buffer,
                                size_t capacity) {
  const auto time = now_size == 0 ? std::optional(local_now()) : parse_iso8601({now, now_size});
  if (!time) return -1;
  const std::string text = format_time(*time, {format, format_size});
  const size_t size = std::min(text.size(), capacity);
  std::copy_n(text.data(), size, buffer);
  return static_cast<ptrdiff_t>(size);
}

// A template is a string, or a list of {"name": ..., "template": ...}: `name` of them, if there is one.
const std::string* named_template(const json& value, std::string_view name) {
  if (value.is_string() && name == "default") return value.get_ptr<const std::string*>();
  if (!value.is_array()) return nullptr;
  for (const auto& entry : value)
    if (entry.is_object() && entry.value("name", json()) == name && entry.contains("template"))
      return entry["template"].get_ptr<const std::string*>();
  return nullptr;
}

}  // namespace

Result<native::Rendered> native::render(const OnwTemplate* chat_template, const OnwTokenizer* tracked_for,
                                        std::string_view request_json, std::string_view special_tokens) {
  RETURN_IF_ERROR(check_json_depth(request_json, "the request", kMaxJsonDepth));
  OnwBytes bytes;
  OnwEncoded ranges;
  RETURN_IF_ERROR(checked(onw_render(chat_template, tracked_for, request_json.data(), request_json.size(),
                                     special_tokens.data(), special_tokens.size(), write_time, &ranges, &bytes),
                          bytes, "chat template"));
  Rendered rendered;
  rendered.text = take(bytes);
  if (ranges.offsets != nullptr) rendered.protected_ranges.assign(ranges.offsets, ranges.offsets + 2 * ranges.size);
  onw_encoded_free(ranges);
  return rendered;
}

void ChatTemplate::Free::operator()(OnwTemplate* t) const { onw_template_free(t); }

Result<ChatTemplate::Native> ChatTemplate::compile(std::string_view jinja) {
  OnwBytes bytes;
  OnwTemplate* native = nullptr;
  RETURN_IF_ERROR(
      native::checked(onw_template_new(jinja.data(), jinja.size(), &native, &bytes), bytes, "chat template"));
  return Native(native);
}

Result<ChatTemplate> ChatTemplate::from_source(std::string_view jinja) {
  auto native = compile(jinja);
  if (!native) return failure(std::move(native));
  ChatTemplate result;
  result.source_ = jinja;
  result.native_ = std::move(*native);
  return result;
}

Result<ChatTemplate> ChatTemplate::open(const std::string& folder) {
  const std::filesystem::path path(folder);
  auto source = read_text_file(path / "chat_template.jinja");
  if (source) return from_source(*source);
  if (source.error().code != Code::not_found) return failure(std::move(source));
  for (const char* name : {"tokenizer_config.json", "chat_template.json"}) {
    const auto text = read_text_file(path / name);
    if (!text && text.error().code == Code::not_found) continue;
    RETURN_IF_ERROR(text);
    RETURN_IF_ERROR(check_json_depth(*text, name, kMaxJsonDepth));
    const json config = json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (!config.is_object()) return error(Code::bad_format, "{}: not a JSON object. Download the file again", name);
    if (!config.contains("chat_template") || config["chat_template"].is_null()) continue;
    const std::string* ordinary = named_template(config["chat_template"], "default");
    const std::string* tool_use = named_template(config["chat_template"], "tool_use");
    if (ordinary == nullptr) ordinary = tool_use;
    if (ordinary == nullptr)
      return error(Code::bad_format,
                   "{}: 'chat_template' is neither a text nor a list with one named 'default'. Download the file again",
                   name);
    auto result = from_source(*ordinary);
    if (!result) return failure(std::move(result), name);
    if (tool_use != nullptr) {
      auto native = compile(*tool_use);
      if (!native) return failure(std::move(native), name);
      result->tool_use_ = std::move(*native);
    }
    return result;
  }
  return error(Code::not_found, "{}: no chat template (chat_template.jinja, or chat_template in tokenizer_config.json)",
               folder);
}

const OnwTemplate* ChatTemplate::choose(std::string_view request_json) const {
  if (tool_use_ == nullptr || !check_json_depth(request_json, "the request", kMaxJsonDepth)) return native_.get();
  const json request = json::parse(request_json, nullptr, /*allow_exceptions=*/false);
  const bool has_tools = request.is_object() && request.contains("tools") && !request["tools"].is_null();
  return has_tools ? tool_use_.get() : native_.get();
}

Result<std::string> ChatTemplate::render(std::string_view request_json, std::string_view special_tokens) const {
  auto rendered = native::render(choose(request_json), nullptr, request_json, special_tokens);
  if (!rendered) return failure(std::move(rendered));
  return std::move(rendered->text);
}

}  // namespace onw
