// A model ready to answer: what the server and the chat in the terminal share.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "runtime/engine.h"
#include "server/answer_text.h"
#include "text/text.h"

namespace onw {
class ModelFolder;
}

namespace onw::server {

struct ServedModel {
  std::string name;  // as clients call it
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat_template;
  AnswerStyle style;  // of these two
  std::vector<int32_t> stop_ids;
  SamplingParams sampling;  // as the publisher recommends it
  int max_choices = 32;
  int64_t created = 0;             // seconds since 1970
  std::unique_ptr<Engine> engine;  // last, so that it ends first

  // Where a later request is likely to branch off from this one's prompt, for the engine to keep its state there; none
  // where the state can go back to any length.
  std::vector<int64_t> branch_points(std::string_view request_json, const ChatPrompt& prompt) const;

  // Errors: those of Engine::load and of the tokenizer. A folder without a chat template is fine.
  static Result<std::unique_ptr<ServedModel>> load(const std::filesystem::path& folder, std::string name,
                                                   const EngineOptions& options);
};

// What the publisher recommends, or the usual where he recommends nothing. Errors: bad_format for a value that no
// request could have.
Result<SamplingParams> recommended_sampling(const ModelFolder& folder);

}  // namespace onw::server
