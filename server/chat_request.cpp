#include "server/chat_request.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "server/chat_messages.h"
#include "server/field_reader.h"
#include "server/json_slices.h"
#include "server/request_json.h"

namespace onw::server {
namespace {

using nlohmann::json;

bool harmless(std::string_view harmless_values, const json& value) {
  std::string_view rest = harmless_values;
  while (!rest.empty()) {
    const auto end = std::min(rest.find('|'), rest.size());
    if (value == json::parse(rest.substr(0, end))) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

void refuse_unsupported(FieldReader& fields) {
  for (const auto& field : kRequestFields) {
    if (field.treatment != Treatment::refused) continue;
    const json* value = fields.find(field);
    if (value != nullptr && !harmless(field.type, *value)) fields.fail(field, "is not supported: {}", field.meaning);
  }
}

template <class T, class U>
void set(T& target, const std::optional<U>& value) {
  if (value) target = static_cast<T>(*value);
}

void read_logit_bias(FieldReader& fields, int64_t vocabulary, SamplingParams& sampling) {
  const json* bias = fields.find("logit_bias");
  if (bias == nullptr) return;
  if (!bias->is_object()) return fields.fail("logit_bias", "must be an object, is {}", kind_of(*bias));
  for (const auto& [key, value] : bias->items()) {
    int32_t id = -1;
    const auto [end, failure] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (failure != std::errc() || end != key.data() + key.size() || id < 0 || id >= vocabulary)
      return fields.fail("logit_bias", "'{}' is not a token id below {}", shortened(key), vocabulary);
    if (!value.is_number() || !kLogitBiasRange.contains(value.get<double>()))
      return fields.fail("logit_bias", "the bias of token {} must be a number {}", id, range_text(kLogitBiasRange));
    sampling.logit_bias.emplace_back(id, value.get<float>());
  }
}

void read_sampling(FieldReader& fields, const RequestDefaults& defaults, SamplingParams& s) {
  s = defaults.sampling;
  set(s.temperature, fields.number("temperature"));
  set(s.top_p, fields.number("top_p"));
  set(s.top_k, fields.integer("top_k"));
  set(s.min_p, fields.number("min_p"));
  set(s.repetition_penalty, fields.number("repetition_penalty"));
  set(s.presence_penalty, fields.number("presence_penalty"));
  set(s.frequency_penalty, fields.number("frequency_penalty"));
  if (const auto seed = fields.integer("seed")) s.seed = static_cast<uint64_t>(*seed);
  read_logit_bias(fields, defaults.vocabulary, s);
}

void read_stops(FieldReader& fields, std::vector<std::string>& stops) {
  const json* stop = fields.find("stop");
  if (stop == nullptr) return;
  const json list = stop->is_array() ? *stop : json::array({*stop});
  if (list.size() > kMaxStops)
    return fields.fail("stop", "has {} strings, at most {} are taken", list.size(), kMaxStops);
  for (const json& one : list) {
    if (!one.is_string()) return fields.fail("stop", "must be a string or an array of strings");
    if (one.get_ref<const std::string&>().empty()) return fields.fail("stop", "an empty string would stop at once");
    stops.push_back(one.get<std::string>());
  }
}

void read_lengths(FieldReader& fields, const RequestDefaults& defaults, ChatRequest& request) {
  set(request.max_tokens, fields.integer("max_tokens"));
  set(request.max_tokens, fields.integer("max_completion_tokens"));
  set(request.choices, fields.integer("n", defaults.max_choices));
}

void read_logprobs(FieldReader& fields, ChatRequest& request) {
  const bool wanted = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs");
  if (top && !wanted) fields.fail("top_logprobs", "needs logprobs: true");
  if (wanted) request.logprobs = static_cast<int>(top.value_or(0));
}

void read_stream(FieldReader& fields, ChatRequest& request) {
  request.stream = fields.boolean("stream").value_or(false);
  const json* options = fields.find("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) return fields.fail("stream_options", "must be an object, is {}", kind_of(*options));
  if (!request.stream) return fields.fail("stream_options", "needs stream: true");
  FieldReader inner(*options, "stream_options.");
  request.include_usage = inner.boolean("stream_options.include_usage").value_or(false);
  fields.adopt(inner);
}

std::string dump_text(const std::string& text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

// What the template may look at beside the messages. Its own words are as the request wrote them.
std::string template_variables(FieldReader& fields, std::string_view body) {
  std::string out;
  const json* extra = fields.find("chat_template_kwargs");
  if (extra != nullptr && !extra->is_object())
    fields.fail("chat_template_kwargs", "must be an object, is {}", kind_of(*extra));
  const auto raw = member(body, "chat_template_kwargs");
  if (const auto twice = repeated_key(raw))
    fields.fail("chat_template_kwargs", "has '{}' more than once: give it once", shortened(*twice));
  for (const auto& [key, value] : members(raw)) {
    if (key == "messages" || key == "add_generation_prompt")
      fields.fail("chat_template_kwargs", "'{}' is the server's to set", key);
    else
      out += fmt::format(",{}:{}", dump_text(key), value);
  }
  if (const auto effort = fields.text("reasoning_effort")) {
    out += fmt::format(",\"reasoning_effort\":{}", dump_text(*effort));
    if (*effort == "none") out += ",\"enable_thinking\":false";
  }
  return out;
}

}  // namespace

ApiResult<ChatRequest> parse_chat_request(std::string_view body, const RequestDefaults& defaults) {
  body = without_byte_order_mark(body);
  const auto parsed = parse_body(body);
  if (!parsed) return tl::unexpected(parsed.error());
  if (!parsed->is_object())
    return tl::unexpected(ApiError{.message = fmt::format("the body must be an object, is {}", kind_of(*parsed))});
  FieldReader fields(*parsed);
  if (const auto twice = repeated_key(body))
    fields.fail_with(shortened(*twice), "is there more than once: give it once");
  ChatRequest request;
  set(request.model, fields.text("model"));
  refuse_unsupported(fields);
  read_sampling(fields, defaults, request.sampling);
  read_stops(fields, request.stops);
  read_lengths(fields, defaults, request);
  read_logprobs(fields, request);
  read_stream(fields, request);
  const auto variables = template_variables(fields, body);
  const json* messages = fields.find("messages");
  if (messages == nullptr) fields.fail("messages", "is missing");
  if (fields.error()) return tl::unexpected(*fields.error());
  auto prepared = template_messages(*messages, member(body, "messages"));
  if (!prepared) return tl::unexpected(std::move(prepared.error()));
  request.variables = fmt::format("{{\"messages\":{}{}}}", *prepared, variables);
  return request;
}

}  // namespace onw::server
