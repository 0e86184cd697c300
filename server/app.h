// The server's routes. Requests come from the HTTP layer, on its worker threads.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include "server/access.h"
#include "server/chat_job.h"
#include "server/http.h"
#include "server/served_model.h"

namespace onw::server {

struct AppOptions {
  AccessRules access;
  std::chrono::milliseconds quiet{10'000};  // of a stream, before a keep-alive comment
};

class App {
 public:
  explicit App(AppOptions options) : options_(std::move(options)), access_(options_.access) {}
  ~App();  // no request may be inside handle() any more

  // Until then everything but /health and the start page is told to wait.
  void set_model(std::shared_ptr<ServedModel> model);

  void handle(HttpRequest request, const ReplyPtr& reply);
  bool busy() const { return handling_ > 0; }  // a thread is inside handle()

  // From here on new work is refused; what runs goes on.
  void refuse_new_work();
  // Ends what runs after its running step.
  void cancel_all();

 private:
  HttpResponse answer(const HttpRequest& request, bool& deferred, const ReplyPtr& reply);
  HttpResponse health() const;
  HttpResponse models(const HttpRequest& request) const;
  HttpResponse about() const;
  HttpResponse chat(const HttpRequest& request, bool& deferred, const ReplyPtr& reply);
  std::shared_ptr<ServedModel> model() const;

  AppOptions options_;
  Access access_;
  mutable std::mutex mutex_;
  std::shared_ptr<ServedModel> model_;
  std::vector<std::weak_ptr<ChatJob>> jobs_;
  bool closing_ = false;
  std::atomic<int> handling_ = 0;
};

}  // namespace onw::server
