#include "text/commands.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "text/json_limits.h"

namespace onw {

using nlohmann::json;

namespace {

Result<std::vector<int32_t>> read_ids(std::string_view input) {
  std::vector<int32_t> ids;
  const auto is_space = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  const auto separates = [&](char c) { return is_space(c) || c == '[' || c == ']' || c == ','; };
  for (size_t at = 0; at < input.size();) {
    if (separates(input[at])) {
      ++at;
      continue;
    }
    const char* begin = input.data() + at;
    const char* end = input.data() + input.size();
    int32_t id = 0;
    const auto [stop, mistake] = std::from_chars(begin, end, id);
    if (mistake != std::errc() || id < 0 || (stop != end && !separates(*stop)))
      return error(Code::invalid_argument,
                   "byte {}: '{}' is not an id. Give decimal ids, by white space or as a JSON array", at,
                   input.substr(at, 12));
    ids.push_back(id);
    at = static_cast<size_t>(stop - input.data());
  }
  return ids;
}

// Text as JSON; what is not UTF-8 (a piece may be part of a character) becomes U+FFFD.
std::string quoted(const std::string& text) { return json(text).dump(-1, ' ', false, json::error_handler_t::replace); }

std::string as_json(const Tokenizer& tokenizer, const Encoding& encoding) {
  json pieces = json::array();
  for (const int32_t id : encoding.ids) pieces.push_back(tokenizer.piece(id));
  return json{{"ids", encoding.ids}, {"pieces", pieces}, {"offsets", encoding.offsets}}.dump(
             -1, ' ', false, json::error_handler_t::replace) +
         "\n";
}

std::string as_table(const Tokenizer& tokenizer, const Encoding& encoding) {
  std::string table = fmt::format("{:>8} {:>8} {:>8}  {}\n", "id", "begin", "end", "piece");
  for (size_t i = 0; i < encoding.ids.size(); ++i)
    table += fmt::format("{:>8} {:>8} {:>8}  {}\n", encoding.ids[i], encoding.offsets[i].first,
                         encoding.offsets[i].second, quoted(tokenizer.piece(encoding.ids[i])));
  return table;
}

}  // namespace

Result<std::string> tokenize_command(const Tokenizer& tokenizer, const TokenizeOptions& options,
                                     std::string_view input) {
  if (options.decode) {
    const auto ids = read_ids(input);
    RETURN_IF_ERROR(ids);
    for (const int32_t id : *ids)
      if (tokenizer.piece(id).empty())
        return error(
            Code::invalid_argument,
            "{} is the id of no token: the vocabulary has {} ids, 0 to {}. Were they made by another tokenizer?", id,
            tokenizer.vocabulary_size(), tokenizer.vocabulary_size() - 1);
    return tokenizer.decode(*ids);
  }
  const auto encoding = tokenizer.encode(input, {.special = options.special, .bos = options.bos});
  RETURN_IF_ERROR(encoding);
  return options.json ? as_json(tokenizer, *encoding) : as_table(tokenizer, *encoding);
}

Result<std::string> render_command(const ChatTemplate& chat_template, const Tokenizer* tokenizer,
                                   std::string_view input) {
  if (tokenizer == nullptr) return chat_template.render(input);
  RETURN_IF_ERROR(check_json_depth(input, "the request", kMaxJsonDepth));
  // In the order of the input, and with its numbers: only the special tokens are looked at here.
  const json request = json::parse(input, nullptr, /*allow_exceptions=*/false);
  if (!request.is_object()) return chat_template.render(input);
  json tokens = tokenizer->special_tokens();
  if (request.contains("special_tokens") && request["special_tokens"].is_object())
    tokens.update(request["special_tokens"]);
  return chat_template.render(input, tokens.dump());
}

}  // namespace onw
