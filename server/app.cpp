#include "server/app.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/version.h"

namespace onw::server {
namespace {

using nlohmann::ordered_json;

std::string dump(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

HttpResponse wrong_method(std::string_view allowed) {
  auto response = error_response({.status = 405, .message = fmt::format("this path takes {} only", allowed)});
  response.headers.emplace_back("Allow", std::string(allowed));
  return response;
}

ordered_json model_json(const ServedModel& model) {
  return {{"id", model.name},
          {"object", "model"},
          {"created", model.created},
          {"owned_by", "onw"},
          {"context_length", model.engine->info().context_tokens}};
}

// Where a device takes over from the CPU, and how often it erred. Not why: that may name this machine's folders.
ordered_json device_json(const DeviceReport& r) {
  return {{"name", r.device},
          {"state", name(r.state)},
          {"graphs_made", r.made},
          {"graphs", r.of},
          {"device_steps", r.device_steps},
          {"cpu_steps", r.standby_steps},
          {"wrong_steps", r.wrong_steps},
          {"refused_steps", r.refused_steps},
          {"losses", r.losses},
          {"attention_inside_tokens", r.fused_tokens}};
}

// "%2F" -> "/": clients escape the slash of a name.
std::string without_escapes(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    int byte = 0;
    const char* const end = text.data() + i + 3;
    if (text[i] == '%' && i + 2 < text.size() && std::from_chars(text.data() + i + 1, end, byte, 16).ptr == end) {
      out += static_cast<char>(byte);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

constexpr std::string_view kModels = "/v1/models";

}  // namespace

void App::set_model(std::shared_ptr<ServedModel> model) {
  const std::lock_guard lock(mutex_);
  model_ = std::move(model);
}

std::shared_ptr<ServedModel> App::model() const {
  const std::lock_guard lock(mutex_);
  return model_;
}

void App::refuse_new_work() {
  const std::lock_guard lock(mutex_);
  closing_ = true;
}

void App::cancel_all() {
  std::vector<std::weak_ptr<ChatJob>> jobs;
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    jobs = jobs_;
  }
  for (const auto& weak : jobs)
    if (const auto job = weak.lock()) job->cancel();
}

App::~App() { CHECK(!busy()); }

void App::handle(HttpRequest request, const ReplyPtr& reply) {
  struct Inside {
    std::atomic<int>& count;
    explicit Inside(std::atomic<int>& c) : count(c) { ++count; }
    ~Inside() { --count; }
  };
  const Inside inside(handling_);
  bool deferred = false;
  auto response = answer(request, deferred, reply);
  if (deferred) return;
  for (auto& header : access_.cors(request)) response.headers.push_back(std::move(header));
  reply->send(std::move(response));
}

HttpResponse App::answer(const HttpRequest& request, bool& deferred, const ReplyPtr& reply) {
  if (const auto refused = access_.refuse(request)) return error_response(*refused);
  if (request.method == "OPTIONS") return access_.preflight(request);
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (request.path == "/health") return reads ? health() : wrong_method("GET");
  if (request.path == "/") return reads ? about() : wrong_method("GET");
  if (const auto refused = access_.refuse_without_key(request)) return error_response(*refused);
  if (request.path == "/v1/chat/completions")
    return request.method == "POST" ? chat(request, deferred, reply) : wrong_method("POST");
  if (request.path == kModels || request.path.rfind("/v1/models/", 0) == 0)
    return reads ? models(request) : wrong_method("GET");
  return error_response({.status = 404,
                         .message = fmt::format("there is nothing at {}. There is: POST /v1/chat/completions, GET "
                                                "/v1/models, GET /health",
                                                shortened(request.path)),
                         .code = "unknown_path"});
}

HttpResponse App::health() const {
  const auto loaded = model();
  if (!loaded) {
    auto response = json_response(503, R"({"status":"loading"})");
    response.headers.emplace_back("Retry-After", "1");
    return response;
  }
  const auto stats = loaded->engine->stats();
  const bool fails = answers_nothing(stats.device);
  ordered_json health = {{"status", fails ? "failing" : "ok"},
                         {"model", loaded->name},
                         {"active", stats.active},
                         {"waiting", stats.waiting}};
  if (loaded->engine->info().drafts)
    health["drafts"] = {{"drafted_tokens", stats.drafted_tokens}, {"accepted_tokens", stats.accepted_tokens}};
  if (loaded->engine->info().mtp)
    health["drafts"]["mtp"] = {{"drafted_tokens", stats.mtp_drafted_tokens},
                               {"accepted_tokens", stats.mtp_accepted_tokens},
                               {"judged", stats.mtp_judged},
                               {"right", stats.mtp_right},
                               {"seconds", stats.mtp_seconds},
                               {"errors", stats.mtp_errors}};
  else if (const std::string& why = loaded->engine->info().no_mtp_reason; !why.empty())
    health["drafts"]["mtp"] = {{"off", why}};
  if (!stats.device.device.empty()) health["device"] = device_json(stats.device);
  return json_response(fails ? 503 : 200, dump(health));
}

HttpResponse App::about() const {
  const auto loaded = model();
  return json_response(200, dump({{"name", "onw"},
                                  {"version", kVersion},
                                  {"model", loaded ? ordered_json(loaded->name) : ordered_json()},
                                  {"chat", "/v1/chat/completions"},
                                  {"models", "/v1/models"},
                                  {"health", "/health"}}));
}

HttpResponse App::models(const HttpRequest& request) const {
  const auto loaded = model();
  if (request.path == kModels) {
    ordered_json list = ordered_json::array();
    if (loaded) list.push_back(model_json(*loaded));
    return json_response(200, dump({{"object", "list"}, {"data", std::move(list)}}));
  }
  const auto name = without_escapes(request.path.substr(kModels.size() + 1));
  if (loaded && name == loaded->name) return json_response(200, dump(model_json(*loaded)));
  return error_response({.status = 404,
                         .message = fmt::format("there is no model '{}' here", shortened(name)),
                         .code = "model_not_found"});
}

HttpResponse App::chat(const HttpRequest& request, bool& deferred, const ReplyPtr& reply) {
  const auto loaded = model();
  if (!loaded) return error_response({.status = 503, .message = "the model is still loading", .code = "loading"});
  auto parsed = parse_chat_request(request.body,
                                   {loaded->sampling, loaded->engine->info().model.vocabulary, loaded->max_choices});
  if (!parsed) return error_response(parsed.error());
  if (!parsed->model.empty() && parsed->model != loaded->name)
    return error_response(
        {.status = 404,
         .message = fmt::format("there is no model '{}' here, only '{}'", shortened(parsed->model), loaded->name),
         .param = "model",
         .code = "model_not_found"});
  if (const DeviceReport device = loaded->engine->stats().device; answers_nothing(device))
    return error_response({.status = 503,
                           .message = fmt::format("the {}, which this server was started for, does not answer; its log "
                                                  "says why",
                                                  device.device),
                           .code = "device_unavailable"});
  const auto job = std::make_shared<ChatJob>(loaded, std::move(*parsed), reply, access_.cors(request), options_.quiet);
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return error_response({.status = 503, .message = "the server is shutting down", .code = "cancelled"});
    std::erase_if(jobs_, [](const auto& weak) { return weak.expired(); });
    jobs_.push_back(job);
  }
  deferred = true;
  job->start();
  return {};
}

}  // namespace onw::server
