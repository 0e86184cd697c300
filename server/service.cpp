#include "server/service.h"

namespace onw::server {

Result<std::unique_ptr<Service>> Service::start(AppOptions app, HttpOptions http) {
  http.refuse = [](int status, std::string_view message) {
    return error_response({.status = status, .message = std::string(message)});
  };
  auto server = HttpServer::listen(std::move(http));
  RETURN_IF_ERROR(server);
  auto service = std::make_unique<Service>(std::move(app), std::move(*server));
  service->http_->start([&inside = service->app_](HttpRequest request, const ReplyPtr& reply) {
    inside.handle(std::move(request), reply);
  });
  return service;
}

}  // namespace onw::server
