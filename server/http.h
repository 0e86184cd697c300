// HTTP/1.1 over TCP: connections, limits, streams. Knows nothing of models or JSON; http.cpp and
// http_bind alone include the library that does the work.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace onw::server {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // as sent, without the query
  std::string query;
  Headers headers;  // names in lower case
  std::string body;

  std::string_view header(std::string_view lower_case_name) const;  // "" where absent
  int count(std::string_view lower_case_name) const;
};

struct HttpResponse {
  int status = 200;
  Headers headers;
  std::string body;
};

// The answer to one request: send(), or begin(), write()..., end(). Any thread may call it; things go out in the order
// of the calls. Dropped without an end, it answers 500, or cuts the connection where the answer had begun.
class Reply {
 public:
  virtual ~Reply() = default;

  virtual void send(HttpResponse response) = 0;

  // Starts a body of unknown length. After `quiet` without a write, `filler` is written by itself, again and again.
  virtual void begin(HttpResponse head, std::string filler, std::chrono::milliseconds quiet) = 0;
  virtual void write(std::string bytes) = 0;
  virtual void end() = 0;

  // Runs `work` on the thread of the connection, after what was posted before.
  virtual void post(std::function<void()> work) = 0;

  // Called once, on the thread of the connection, if the peer goes away before the end (at once if it has already).
  virtual void when_closed(std::function<void()> callback) = 0;

  // What HttpRecord::note shall say: asked once, on the thread of the connection, when the request is over.
  virtual void describe(std::function<std::string()> note) = 0;
};
using ReplyPtr = std::shared_ptr<Reply>;

// Called on a worker thread, which may take its time.
using Handler = std::function<void(HttpRequest request, const ReplyPtr& reply)>;

// A request that is over, for a log. Nothing of a body or a header is in it.
struct HttpRecord {
  std::string method = "-";  // "-": what came could not be read as a request
  std::string path = "-";
  int status = 0;      // 0: none was sent
  bool whole = false;  // the answer went out to its last byte; false: the peer went away, or was cut
  double seconds = 0;  // from the request's header to here
  std::string note;
};

struct HttpOptions {
  std::string host = "localhost";  // localhost: 127.0.0.1 and, where the machine has IPv6, ::1; or one address
  int port = 0;                    // 0: a free one
  int workers = 4;
  size_t header_bytes = 16 << 10;
  size_t body_bytes = 64 << 20;
  size_t connections = 1024;  // beyond, the one that has waited longest for a request goes; where all are busy: a 503
  std::chrono::milliseconds header_timeout{75'000};
  std::chrono::milliseconds body_timeout{300'000};
  std::chrono::milliseconds write_timeout{60'000};  // a peer that reads nothing for so long is gone
  std::function<HttpResponse(int status, std::string_view message)> refuse;  // for what never reaches the handler
  std::function<void(const HttpRecord&)> record;  // after each request, on the one thread of the connections
};

class HttpServer {
 public:
  // Takes the addresses: from here on connections wait. All of them, or none. Errors: usage (an address that cannot
  // be read), io (occupied: names address and port, and what to do).
  static Result<std::unique_ptr<HttpServer>> listen(HttpOptions options);

  virtual ~HttpServer() = default;  // stops

  virtual int port() const = 0;
  virtual std::vector<std::string> addresses() const = 0;  // "127.0.0.1:8000", "[::1]:8000"

  virtual void start(Handler handler) = 0;

  // Accepts nothing more, lets what is being answered finish, and closes the rest, half a request included. Returns
  // at once.
  virtual void drain() = 0;
  // Waits until every connection has ended, at most so long; false where some have not.
  virtual bool wait_drained(std::chrono::milliseconds most = std::chrono::hours(24 * 365)) = 0;
  // Cuts every connection and joins the threads.
  virtual void stop() = 0;
};

}  // namespace onw::server
