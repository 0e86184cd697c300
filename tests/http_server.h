// A small HTTP server for tests, with faults on demand: one connection at a time, on a free port of 127.0.0.1. With TLS
// it has a certificate that it issued itself.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace onw::testing {

struct HttpServerRequest {
  std::string target;                          // as sent: with a proxy, a whole address
  std::map<std::string, std::string> headers;  // lower-case names

  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

struct HttpServerReply {
  int status = 200;
  std::string body;
  std::map<std::string, std::string> headers;
  int64_t sent_bytes = -1;  // closes the connection after so many bytes of the body; -1: sends it whole
};

class HttpServer {
 public:
  using Handler = std::function<HttpServerReply(const HttpServerRequest&)>;

  // `tls_name`: who the certificate says issued it; empty: no TLS.
  explicit HttpServer(Handler handler, std::string_view tls_name = "");
  ~HttpServer();

  std::string address() const;      // "http://127.0.0.1:PORT", or https
  std::string certificate() const;  // in PEM; empty without TLS
  int port() const;
  std::vector<HttpServerRequest> requests() const;  // all so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// `body` as a server with ranges sends it: 206 for "bytes=N-", 416 beyond the end.
HttpServerReply serve_range(const HttpServerRequest& request, const std::string& body);

}  // namespace onw::testing
