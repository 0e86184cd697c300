// onw serve: the HTTP server.
#include <atomic>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <thread>

#include "base/browser.h"
#include "base/interrupt.h"
#include "base/terminal.h"
#include "cli/commands.h"
#include "cli/end_soon.h"
#include "cli/engine_flags.h"
#include "cli/model.h"
#include "cli/output.h"
#include "cli/pull.h"
#include "server/request_log.h"
#include "server/service.h"

namespace onw::cli {
namespace {

constexpr auto kCancelWait = std::chrono::milliseconds(1500);

bool only_this_machine(const std::string& host) {
  return host == "localhost" || host == "::1" || host == "[::1]" || host.rfind("127.", 0) == 0;
}

// On the one thread of the connections. It must not wait for whoever reads stderr, a pager for instance: then lines are
// left out, and counted.
class RequestLog {
 public:
  void operator()(const server::HttpRecord& record) {
    if (!takes_a_line(Stream::err)) return void(++left_out_);
    const auto left_out = std::exchange(left_out_, 0);
    tell("{}{}", left_out > 0 ? fmt::format("({} requests left out here: nobody read the log)\n", left_out) : "",
         server::log_line(record, std::time(nullptr)));
  }

 private:
  int64_t left_out_ = 0;
};

server::AppOptions app_options(const Args& args) {
  server::AppOptions options;
  options.access.loopback = only_this_machine(args.text("--host"));
  options.access.allowed_hosts = args.list("--allow-host");
  options.access.allowed_origins = args.list("--allow-origin");
  options.access.api_key = args.text("--api-key");
  return options;
}

server::HttpOptions http_options(const Args& args) {
  server::HttpOptions options;
  options.host = args.text("--host");
  options.port = static_cast<int>(*args.integer("--port"));
  if (!args.has("--quiet")) options.record = RequestLog();
  return options;
}

// Which signal has come, if any. The first begins the end, the second is the end.
class Ending {
 public:
  Ending(server::App& app, server::HttpServer& http) : app_(app), http_(http) {}

  void signal(Interrupt interrupt) {
    const int code = interrupt == Interrupt::ctrl_c ? 130 : 143;
    if (loading_ || begun_.exchange(true)) exit_now(code);
    if (interrupt == Interrupt::ctrl_c) {
      tell("Stopping; once more ends at once\n");
      app_.cancel_all();
    } else {
      tell("Finishing what runs, taking nothing new\n");
      app_.refuse_new_work();
    }
    http_.drain();
    const std::lock_guard lock(mutex_);
    cancelled_ = interrupt == Interrupt::ctrl_c;
    asked_ = true;
    changed_.notify_all();
  }

  // Until everything has ended as the signal wants it.
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return asked_; });
    const bool cancelled = cancelled_;
    lock.unlock();
    if (cancelled)
      http_.wait_drained(kCancelWait);
    else
      http_.wait_drained();
  }

  void loaded() { loading_ = false; }

 private:
  server::App& app_;
  server::HttpServer& http_;
  std::atomic<bool> loading_ = true;
  std::atomic<bool> begun_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool asked_ = false;
  bool cancelled_ = false;
};

void announce(const server::ServedModel& model, const server::HttpServer& http, const Args& args) {
  tell("{} on {}\n", model.name, describe(model.engine->info()));
  if (const auto remark = fused_remark(args, model.engine->info().device); !remark.empty()) tell("{}\n", remark);
  tell("Serving at http://{}/v1\n", fmt::join(http.addresses(), "/v1 and http://"));
  if (!only_this_machine(args.text("--host")) && !args.has("--api-key"))
    tell("Anyone on the network may use it: --api-key KEY asks for a key\n");
}

}  // namespace

Result<void> run_serve(const Args& args) {
  ignore_broken_pipes();
  if (args.has("--api-key") && args.text("--api-key").empty())
    return error(Code::usage, "--api-key is empty, which would let anyone in. Give a key, or leave the flag out");
  EndSoon end;
  // Before the model: an occupied port is told at once.
  const auto service = server::Service::start(app_options(args), http_options(args));
  RETURN_IF_ERROR(service);
  auto& http = (*service)->http();
  Ending ending((*service)->app(), http);
  const InterruptWatch watch([&ending](Interrupt interrupt) { ending.signal(interrupt); });
  const auto folder = locate_or_pull(args.positional(0));
  RETURN_IF_ERROR(folder);
  auto options = engine_options(args);
  options.max_sessions = static_cast<int>(*args.integer("--sessions"));
  options.notice = [](const std::string& text) {  // like the log: nobody waits for whoever reads it
    if (takes_a_line(Stream::err)) tell("onw: {}\n", printable(text));
  };
  auto loaded = server::ServedModel::load(*folder, model_name(*folder), options);
  RETURN_IF_ERROR(loaded);
  const std::shared_ptr<server::ServedModel> model = std::move(*loaded);
  (*service)->app().set_model(model);
  ending.loaded();
  announce(*model, http, args);
  if (args.has("--open") && !open_in_browser(fmt::format("http://localhost:{}/", http.port())))
    tell("There is no browser to open\n");
  ending.wait();
  http.stop();
  end.begin({});
  return {};
}

}  // namespace onw::cli
