// The text side of a model, checked as chat and serve would load it.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/result.h"

namespace onw::cli {

struct TextSide {
  bool tokenizer = false;  // without one a model computes with ids alone (bench, eval --ids)
  bool chat_template = false;
};

// Loads tokenizer and chat template of `folder`, a model folder or a published one, for a model of `vocabulary` ids.
// What a folder does not have is no error. Errors: those of the loaders; bad_format for a token with an id that the
// model has no row for. An added token may have such an id where the chat template never writes it (text models that
// were cut from a model with images keep its placeholder).
Result<TextSide> check_text_side(const std::filesystem::path& folder, int64_t vocabulary);

}  // namespace onw::cli
