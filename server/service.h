// The app and the HTTP server before it, in the order in which they must come and go.
#pragma once

#include <memory>

#include "server/app.h"
#include "server/http.h"

namespace onw::server {

class Service {
 public:
  // Takes the addresses and answers from here on, until a model is set with what the app says then. Refusals of the
  // HTTP layer look like the app's. Errors: those of HttpServer::listen.
  static Result<std::unique_ptr<Service>> start(AppOptions app, HttpOptions http);

  Service(AppOptions app, std::unique_ptr<HttpServer> http) : app_(std::move(app)), http_(std::move(http)) {}

  // Cuts every connection, and waits for the handlers that run: at any time, with requests inside.
  ~Service() { http_->stop(); }

  App& app() { return app_; }
  HttpServer& http() { return *http_; }

 private:
  App app_;  // before http_, whose threads call it: it goes after them
  std::unique_ptr<HttpServer> http_;
};

}  // namespace onw::server
