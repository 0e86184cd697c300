#include "tests/http_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdlib>
#include <sstream>
#include <thread>

#include "base/result.h"
#include "tests/tls_socket.h"

namespace onw::testing {

struct HttpServer::State {
  Handler handler;
  int listener = -1;
  int port = 0;
  std::atomic<bool> stop = false;
  mutable std::mutex mutex;
  std::vector<HttpServerRequest> seen;
  std::thread thread;
  std::unique_ptr<TlsIdentity> tls;

  void serve();
  void answer(Socket& socket);
};

namespace {

HttpServerRequest parse(const std::string& head) {
  std::istringstream lines(head);
  HttpServerRequest request;
  std::string line, method;
  std::getline(lines, line);
  std::istringstream(line) >> method >> request.target;
  while (std::getline(lines, line)) {
    const auto colon = line.find(':');
    if (colon == line.npos) continue;
    auto name = line.substr(0, colon), value = line.substr(colon + 1);
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    value.erase(0, value.find_first_not_of(' '));
    value.erase(value.find_last_not_of("\r ") + 1);
    request.headers[name] = value;
  }
  return request;
}

}  // namespace

void HttpServer::State::answer(Socket& socket) {
  std::string head;
  for (char c; head.find("\r\n\r\n") == head.npos && socket.receive(c);) head += c;
  if (head.empty()) return;
  const auto request = parse(head);
  {
    const std::lock_guard lock(mutex);
    seen.push_back(request);
  }
  const auto reply = handler(request);
  std::string text =
      fmt::format("HTTP/1.1 {} Word\r\nConnection: close\r\nContent-Length: {}\r\n", reply.status, reply.body.size());
  for (const auto& [name, value] : reply.headers) text += name + ": " + value + "\r\n";
  socket.send(text + "\r\n");
  const auto sent = reply.sent_bytes < 0 ? reply.body.npos : static_cast<size_t>(reply.sent_bytes);
  socket.send(std::string_view(reply.body).substr(0, sent));
}

void HttpServer::State::serve() {
  while (!stop) {
    const int accepted = ::accept(listener, nullptr, nullptr);
    if (accepted < 0) continue;
    Socket socket(accepted, tls.get());
    if (!stop && socket.ready()) answer(socket);
  }
}

HttpServer::HttpServer(Handler handler, std::string_view tls_name) : state_(std::make_unique<State>()) {
  if (!tls_name.empty()) state_->tls = std::make_unique<TlsIdentity>(tls_name);
  state_->handler = std::move(handler);
  state_->listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  CHECK(::bind(state_->listener, generic, size) == 0 && ::listen(state_->listener, 16) == 0);
  CHECK(::getsockname(state_->listener, generic, &size) == 0);
  state_->port = ntohs(address.sin_port);
  state_->thread = std::thread([state = state_.get()] { state->serve(); });
}

HttpServer::~HttpServer() {
  state_->stop = true;
  ::shutdown(state_->listener, SHUT_RDWR);  // wakes accept
  state_->thread.join();
  ::close(state_->listener);
}

std::string HttpServer::address() const {
  return fmt::format("{}://127.0.0.1:{}", state_->tls == nullptr ? "http" : "https", state_->port);
}
std::string HttpServer::certificate() const { return state_->tls == nullptr ? "" : state_->tls->pem(); }
int HttpServer::port() const { return state_->port; }

std::vector<HttpServerRequest> HttpServer::requests() const {
  const std::lock_guard lock(state_->mutex);
  return state_->seen;
}

HttpServerReply serve_range(const HttpServerRequest& request, const std::string& body) {
  const auto range = request.header("range");
  if (!range.starts_with("bytes=")) return {200, body, {}, -1};
  const auto from = static_cast<size_t>(std::strtoull(range.c_str() + 6, nullptr, 10));
  if (from >= body.size()) return {416, "", {}, -1};
  return {206,
          body.substr(from),
          {{"Content-Range", fmt::format("bytes {}-{}/{}", from, body.size() - 1, body.size())}},
          -1};
}

}  // namespace onw::testing
