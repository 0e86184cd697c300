#include "server/served_model.h"

#include <ctime>
#include <future>

#include "runtime/sampler.h"
#include "store/model_folder.h"
#include "text/branch_points.h"

namespace onw::server {
namespace {

// For models whose publisher says nothing: plain sampling would draw from the whole tail of the distribution, and small
// models then lose the thread.
const SamplingParams kUsual = {.temperature = 0.7F, .top_k = 40, .top_p = 0.95F, .min_p = 0.05F};

SamplingParams sampling_of(const GenerationDefaults& defaults) {
  if (!defaults.temperature && !defaults.top_p && !defaults.top_k && !defaults.min_p && !defaults.repetition_penalty)
    return kUsual;
  SamplingParams s;
  if (defaults.temperature) s.temperature = static_cast<float>(*defaults.temperature);
  if (defaults.top_p) s.top_p = static_cast<float>(*defaults.top_p);
  if (defaults.top_k) s.top_k = static_cast<int>(*defaults.top_k);
  if (defaults.min_p) s.min_p = static_cast<float>(*defaults.min_p);
  if (defaults.repetition_penalty) s.repetition_penalty = static_cast<float>(*defaults.repetition_penalty);
  return s;
}

struct TextSide {
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat_template;
};

Result<TextSide> open_text_side(const std::filesystem::path& folder) {
  auto tokenizer = Tokenizer::open(folder.string());
  RETURN_IF_ERROR(tokenizer);
  TextSide text{.tokenizer = std::move(*tokenizer)};
  auto chat_template = ChatTemplate::open(folder.string());
  if (!chat_template && chat_template.error().code != Code::not_found) return failure(std::move(chat_template));
  if (chat_template) text.chat_template = std::move(*chat_template);
  return text;
}

}  // namespace

Result<SamplingParams> recommended_sampling(const ModelFolder& folder) {
  SamplingParams sampling = sampling_of(folder.engine().generation);
  if (auto ok = check(sampling, folder.engine().vocabulary); !ok)
    return error(Code::bad_format, "{}: 'generation': {}. Correct it there, or convert the model again",
                 (folder.path() / kEngineFile).string(), ok.error().message);
  return sampling;
}

std::vector<int64_t> ServedModel::branch_points(std::string_view request_json, const ChatPrompt& prompt) const {
  if (!chat_template || engine->info().model.truncates_freely) return {};
  return onw::branch_points(tokenizer, *chat_template, request_json, prompt);
}

Result<std::unique_ptr<ServedModel>> ServedModel::load(const std::filesystem::path& folder, std::string name,
                                                       const EngineOptions& options) {
  // A large vocabulary takes longer than the weights, which are only mapped: both at once.
  auto text_side = std::async(std::launch::async, [&folder] { return open_text_side(folder); });
  const auto stored = ModelFolder::open(folder);
  RETURN_IF_ERROR(stored);
  const auto sampling = recommended_sampling(*stored);
  RETURN_IF_ERROR(sampling);
  auto engine = Engine::load(folder, options);
  auto text = text_side.get();
  RETURN_IF_ERROR(text);
  RETURN_IF_ERROR(engine);
  auto model = std::make_unique<ServedModel>(ServedModel{.name = std::move(name),
                                                         .tokenizer = std::move(text->tokenizer),
                                                         .chat_template = std::move(text->chat_template)});
  model->style = answer_style(model->tokenizer, model->chat_template ? &*model->chat_template : nullptr);
  for (const int64_t id : stored->engine().stop_ids) model->stop_ids.push_back(static_cast<int32_t>(id));
  model->sampling = *sampling;
  model->max_choices = options.max_sessions;
  model->created = static_cast<int64_t>(std::time(nullptr));
  model->engine = std::move(*engine);
  return model;
}

}  // namespace onw::server
