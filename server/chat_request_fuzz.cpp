// Any bytes as the body of a chat completion, up to the point where the engine would be asked: what is accepted is
// within its limits, and is rendered and tokenised, or refused, like any other prompt.
#include <nlohmann/json.hpp>

#include "graph/json.h"
#include "server/answer_text.h"
#include "server/chat_request.h"
#include "text/branch_points.h"
#include "text/tiny_tokenizers.h"

namespace {

using onw::ChatTemplate;
using onw::Tokenizer;

constexpr char kTemplate[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking %}<think>\n{% endif %}{% endif %}";

void check(const onw::server::ChatRequest& request, const onw::server::RequestDefaults& defaults) {
  CHECK(request.choices >= 1 && request.choices <= defaults.max_choices);
  CHECK(request.max_tokens == -1 || request.max_tokens >= 1);
  CHECK(request.sampling.temperature >= 0 && request.sampling.top_p > 0 && request.sampling.top_p <= 1);
  CHECK(!request.include_usage || request.stream);
  for (const auto& [id, bias] : request.sampling.logit_bias)
    CHECK(id >= 0 && id < defaults.vocabulary && bias >= -100 && bias <= 100);
  for (const auto& stop : request.stops) CHECK(!stop.empty());
  const auto variables = onw::parse_json(request.variables, "variables");
  CHECK(variables.has_value() && variables->is_object() && (*variables)["messages"].is_array());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto tokenizer = *Tokenizer::from_json(onw::tiny::byte_level());
  static const auto chat_template = *ChatTemplate::from_source(kTemplate);
  static const auto style = onw::server::answer_style(tokenizer, &chat_template);
  const onw::server::RequestDefaults defaults{.sampling = {}, .vocabulary = tokenizer.vocabulary_size()};
  const auto request = onw::server::parse_chat_request({reinterpret_cast<const char*>(data), size}, defaults);
  if (!request) {
    CHECK(!request.error().message.empty() && request.error().status >= 400 && request.error().status < 500);
    return 0;
  }
  check(*request, defaults);
  const auto prompt = tokenizer.encode_chat(chat_template, request->variables);
  if (!prompt) return 0;
  for (const int32_t id : prompt->encoding.ids) CHECK(id >= 0 && id < tokenizer.vocabulary_size());
  for (const int64_t point : onw::branch_points(tokenizer, chat_template, request->variables, *prompt))
    CHECK(point > 0 && point < static_cast<int64_t>(prompt->encoding.ids.size()));
  onw::server::AnswerText text(tokenizer, style, request->stops, prompt->text);
  (void)text.finish();
  return 0;
}
