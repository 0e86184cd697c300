#include "cli/text_side.h"

#include <optional>
#include <set>

#include "text/text.h"

namespace onw::cli {
namespace {

namespace fs = std::filesystem;

// Further ids beyond the vocabulary than any text model has that was cut from a larger one.
constexpr int64_t kMostBeyond = 1 << 16;

Failure beyond(const fs::path& folder, int32_t id, std::string_view piece, int64_t vocabulary, std::string_view why) {
  return error(Code::bad_format,
               "{}: the token '{}' has the id {}, the model has {} ids (0 to {}){}. The tokenizer is of another model: "
               "take the files of one download",
               (folder / "tokenizer.json").string(), piece.substr(0, 60), id, vocabulary, vocabulary - 1, why);
}

Result<void> check_ids(const fs::path& folder, const Tokenizer& tokenizer, const std::optional<ChatTemplate>& chat,
                       int64_t vocabulary) {
  const int64_t end = tokenizer.vocabulary_size();
  if (end <= vocabulary) return {};
  const auto last = static_cast<int32_t>(end - 1);
  if (end - vocabulary > kMostBeyond) return beyond(folder, last, tokenizer.piece(last), vocabulary, "");
  std::set<int32_t> added;
  for (const AddedToken& token : tokenizer.added_tokens()) added.insert(token.id);
  for (auto id = static_cast<int32_t>(vocabulary); id <= last; ++id)
    if (const std::string piece = tokenizer.piece(id); !piece.empty() && !added.contains(id))
      return beyond(folder, id, piece, vocabulary, "");
  for (const AddedToken& token : tokenizer.added_tokens())
    if (token.id >= vocabulary && chat && chat->source().find(token.content) != std::string::npos)
      return beyond(folder, token.id, token.content, vocabulary, ", and the chat template writes it");
  for (const auto& [what, id] : {std::pair{"begins every text", tokenizer.bos()}, {"ends an answer", tokenizer.eos()}})
    if (id && *id >= vocabulary)
      return beyond(folder, *id, tokenizer.piece(*id), vocabulary, fmt::format(", and it {}", what));
  return {};
}

}  // namespace

Result<TextSide> check_text_side(const fs::path& folder, int64_t vocabulary) {
  std::error_code none;
  if (!fs::exists(folder / "tokenizer.json", none)) return TextSide{};
  const auto tokenizer = Tokenizer::open(folder.string());
  RETURN_IF_ERROR(tokenizer);
  auto opened = ChatTemplate::open(folder.string());
  if (!opened && opened.error().code != Code::not_found) return failure(std::move(opened), folder.string());
  std::optional<ChatTemplate> chat;
  if (opened) chat = std::move(*opened);
  RETURN_IF_ERROR(check_ids(folder, *tokenizer, chat, vocabulary));
  return TextSide{.tokenizer = true, .chat_template = chat.has_value()};
}

}  // namespace onw::cli
