#include "server/chat_job.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/memory.h"

namespace onw::server {
namespace {

constexpr int kMaxWaiting = 256;            // requests in the queue; more are told to come back
constexpr int64_t kLargeRequest = 1 << 20;  // bytes from which tokenising leaves much memory behind

ApiError closing() { return {.status = 503, .message = "the server is shutting down", .code = "cancelled"}; }

std::string_view reason_text(FinishReason reason) { return reason == FinishReason::length ? "length" : "stop"; }

}  // namespace

ChatJob::ChatJob(std::shared_ptr<ServedModel> model, ChatRequest request, ReplyPtr reply, Headers headers,
                 std::chrono::milliseconds quiet)
    : model_(std::move(model)),
      request_(std::move(request)),
      reply_(std::move(reply)),
      headers_(std::move(headers)),
      quiet_(quiet),
      head_{new_response_id(), model_->name, static_cast<int64_t>(std::time(nullptr))} {}

void ChatJob::start() {
  reply_->describe([self = shared_from_this()] { return note_text(self->note()); });
  // What the description tells changes on the thread of the connection alone.
  reply_->post([self = shared_from_this(), request = std::make_shared<Result<GenerateRequest>>(prepare())] {
    if (!*request) return self->fail(self->with_sizes(request->error()));
    self->prompt_tokens_ = static_cast<int64_t>((*request)->prompt.size());
    self->submit(std::move(**request));
  });
}

ApiError ChatJob::with_sizes(const Error& failed) const {
  auto failure = to_api_error(failed);
  if (failed.code != Code::context_overflow) return failure;
  failure.param = "messages";
  failure.numbers = {{"n_ctx", model_->engine->info().context_tokens}};
  if (prompt_tokens_ > 0)
    failure.numbers.emplace_back("n_prompt", prompt_tokens_);  // else it was too long to be counted
  return failure;
}

Result<GenerateRequest> ChatJob::prepare() {
  if (!model_->chat_template)
    return error(Code::unsupported,
                 "{} has no chat template: it continues text, but does not chat. Use a model made for conversations",
                 model_->name);
  auto prompt =
      model_->tokenizer.encode_chat(*model_->chat_template, request_.variables, model_->engine->info().context_tokens);
  if (static_cast<int64_t>(request_.variables.size()) > kLargeRequest) give_back_memory();
  RETURN_IF_ERROR(prompt);
  GenerateRequest request;
  request.branch_points = model_->branch_points(request_.variables, *prompt);
  prompt_text_ = std::move(prompt->text);
  request.prompt = std::move(prompt->encoding.ids);
  request.sampling = request_.sampling;
  request.max_tokens = request_.max_tokens;
  request.stop_ids = model_->stop_ids;
  request.logprobs = request_.logprobs;
  request.choices = request_.choices;
  return request;
}

// Everything from here on runs on the thread of the connection.
void ChatJob::submit(GenerateRequest request) {
  reply_->when_closed([self = shared_from_this()] { self->cancel(); });
  if (cancelled_) return fail(closing());
  if (model_->engine->stats().waiting >= kMaxWaiting)
    return fail(
        {.status = 503, .message = fmt::format("{} requests are waiting already. Try again later", kMaxWaiting)});
  for (int i = 0; i < request_.choices; ++i)
    choices_.push_back({AnswerText(model_->tokenizer, model_->style, request_.stops, prompt_text_), {}, false});
  choice_usages_.resize(choices_.size());
  open_choices_ = request_.choices;
  auto generation =
      model_->engine->submit(std::move(request), [reply = reply_, weak = weak_from_this()](TokenEvent event) {
        reply->post([weak, event = std::move(event)] {
          if (const auto self = weak.lock()) self->on_event(event);
        });
      });
  if (!generation) return fail(with_sizes(generation.error()));
  generation_ = std::move(*generation);
  if (!request_.stream) return;
  HttpResponse head{200, headers_, ""};
  head.headers.emplace_back("Content-Type", "text/event-stream");
  head.headers.emplace_back("Cache-Control", "no-store");
  reply_->begin(std::move(head), kKeepAliveFrame, quiet_);
  for (int i = 0; i < request_.choices; ++i) reply_->write(first_chunk(head_, i, request_.include_usage));
}

void ChatJob::cancel() {
  reply_->post([self = shared_from_this()] {
    self->cancelled_ = true;
    if (self->generation_) self->generation_->cancel();
  });
}

AnswerNote ChatJob::note() const {
  AnswerNote note{.prompt_tokens = prompt_tokens_, .reused_tokens = usage_.cached_tokens, .fault = fault_};
  int64_t after_first = 0;
  for (const Usage& usage : choice_usages_) {
    note.completion_tokens += usage.completion_tokens;
    note.drafted_tokens += usage.drafted_tokens;
    note.accepted_tokens += usage.accepted_tokens;
    note.mtp_drafted_tokens += usage.mtp_drafted_tokens;
    note.mtp_accepted_tokens += usage.mtp_accepted_tokens;
    after_first += std::max<int64_t>(0, usage.completion_tokens - 1);
  }
  if (decode_seconds_ > 0) note.tokens_per_s = static_cast<double>(after_first) / decode_seconds_;
  if (over_) note.end = end_;
  return note;
}

TokenTexts ChatJob::token_texts(const TokenEvent& event) const {
  const auto text_of = [this](int32_t id, float logprob) {
    auto bytes = model_->tokenizer.token_bytes(id).value_or("");
    return TokenText{bytes, bytes, logprob};
  };
  TokenTexts texts{text_of(event.id, event.logprob), {}};
  for (const auto& rival : event.top) texts.top.push_back(text_of(rival.id, rival.logprob));
  return texts;
}

void ChatJob::on_event(const TokenEvent& event) {
  const auto index = static_cast<size_t>(event.choice);
  if (over_ || choices_.at(index).done) return;
  if (event.finish == FinishReason::error)
    return fail(to_api_error(event.error.value_or(Error{Code::internal, "the engine gave up without a reason"})));
  if (event.finish == FinishReason::cancelled) return fail(closing());
  usage_.prompt_tokens = event.usage.prompt_tokens;
  usage_.cached_tokens = event.usage.reused_tokens;
  choice_usages_[index] = event.usage;
  decode_seconds_ = std::max(decode_seconds_, event.usage.decode_seconds);
  take(choices_[index], event);
}

// One token into the pipeline of its choice; a stop id is an end and no text.
void ChatJob::take(Choice& choice, const TokenEvent& event) {
  ChoiceDelta delta;
  const bool ended = event.finish != FinishReason::none;
  Result<TextDelta> part;
  if (event.id >= 0 && event.finish != FinishReason::stop) {
    part = choice.text.push(event.id);
    if (!part) return fail(to_api_error(part.error()));
    if (choice.text.in_reasoning()) ++usage_.reasoning_tokens;
    delta = {std::move(part->content), std::move(part->reasoning), {}};
    if (request_.logprobs >= 0) delta.logprobs.push_back(token_texts(event));
  }
  if (ended || choice.text.stopped()) {
    part = choice.text.finish();
    if (!part) return fail(to_api_error(part.error()));
    delta.content += part->content;
    delta.reasoning += part->reasoning;
  }
  emit(event.choice, std::move(delta));
  if (choice.text.stopped())
    finish_choice(event.choice, "stop");
  else if (ended)
    finish_choice(event.choice, std::string(reason_text(event.finish)));
}

void ChatJob::emit(int index, ChoiceDelta delta) {
  if (delta.content.empty() && delta.reasoning.empty() && delta.logprobs.empty()) return;
  if (request_.stream) return reply_->write(delta_chunk(head_, index, delta, request_.include_usage));
  auto& whole = choices_[static_cast<size_t>(index)].whole;
  whole.content += delta.content;
  whole.reasoning += delta.reasoning;
  whole.logprobs.insert(whole.logprobs.end(), delta.logprobs.begin(), delta.logprobs.end());
}

void ChatJob::finish_choice(int index, const std::string& reason) {
  auto& choice = choices_[static_cast<size_t>(index)];
  choice.done = true;
  choice.whole.finish_reason = reason;
  if (end_ != "length") end_ = reason;  // of several choices the one that was cut is told
  if (choice.text.stopped() && generation_) generation_->cancel(index);
  if (request_.stream) reply_->write(finish_chunk(head_, index, reason, request_.include_usage));
  if (--open_choices_ == 0) finish();
}

void ChatJob::add_up() {
  for (const Usage& usage : choice_usages_) {
    usage_.completion_tokens += usage.completion_tokens;
    usage_.drafted_tokens += usage.drafted_tokens;
    usage_.accepted_tokens += usage.accepted_tokens;
    usage_.mtp_drafted_tokens += usage.mtp_drafted_tokens;
    usage_.mtp_accepted_tokens += usage.mtp_accepted_tokens;
  }
}

void ChatJob::finish() {
  over_ = true;
  add_up();
  if (request_.stream) {
    if (request_.include_usage) reply_->write(usage_chunk(head_, usage_));
    reply_->write(kDoneFrame);
    reply_->end();
  } else {
    std::vector<WholeChoice> whole;
    for (auto& choice : choices_) whole.push_back(std::move(choice.whole));
    auto response = json_response(200, whole_answer(head_, whole, usage_, request_.logprobs >= 0));
    response.headers.insert(response.headers.end(), headers_.begin(), headers_.end());
    reply_->send(std::move(response));
  }
  generation_.reset();
}

// A stream that has begun ends with the error and the last frame, so that no client waits for more.
void ChatJob::fail(const ApiError& error) {
  if (std::exchange(over_, true)) return;
  end_ = error.code == "cancelled" ? "cancelled" : "error";
  if (error.status >= 500 && end_ == "error") fault_ = error.message;
  if (request_.stream && generation_) {
    reply_->write(error_frame(error_json(error)));
    reply_->write(kDoneFrame);
    reply_->end();
  } else {
    auto response = error_response(error);
    response.headers.insert(response.headers.end(), headers_.begin(), headers_.end());
    reply_->send(std::move(response));
  }
  generation_.reset();
}

}  // namespace onw::server
