#include "server/http.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <condition_variable>
#include <deque>
#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>

#include "server/http_bind.h"
#include "server/http_record.h"
#include "server/http_text.h"

namespace onw::server {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using net::ip::tcp;

constexpr auto kLinger = std::chrono::seconds(2);  // for the peer to read the last answer before the socket goes

class Connection;

// What all connections share. One thread runs `io`, so nothing there needs a lock; handlers run on `workers`.
struct Core : std::enable_shared_from_this<Core> {
  explicit Core(HttpOptions o) : options(std::move(o)), workers(static_cast<size_t>(std::max(1, options.workers))) {}

  HttpOptions options;
  net::io_context io{1};
  net::thread_pool workers;
  Handler handler;
  std::atomic<bool> draining = false;
  std::atomic<bool> stopped = false;
  std::unordered_map<Connection*, std::weak_ptr<Connection>> connections;  // only on the thread of `io`
  std::mutex mutex;
  std::condition_variable emptied;
  size_t open = 0;  // size of `connections`, under `mutex`

  // Makes room: closes the connection that has waited longest for a request of its peer. False where none waits.
  bool close_longest_waiting(const Connection* except);

  void count() {
    const std::lock_guard lock(mutex);
    open = connections.size();
    if (open == 0) emptied.notify_all();
  }
};

std::string lower(beast::string_view text) {
  std::string out(text.data(), text.size());
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return out;
}

HttpRequest to_request(http::request<http::string_body>&& message) {
  HttpRequest request;
  request.method = std::string(message.method_string());
  const std::string target(message.target());
  const auto mark = target.find('?');
  request.path = target.substr(0, mark);
  if (mark != std::string::npos) request.query = target.substr(mark + 1);
  for (const auto& field : message)
    request.headers.emplace_back(lower(field.name_string()), std::string(field.value()));
  request.body = std::move(message.body());
  return request;
}

// Whether the body is framed in a way that is understood here: any other would be taken for the next request.
bool readable_encoding(const http::request<http::string_body>& message) {
  const auto [first, last] = message.equal_range(http::field::transfer_encoding);
  return first == last || (std::next(first) == last && beast::iequals(first->value(), "chunked"));
}

// One socket: reads a request, lets it be answered, and so on. Everything runs on the thread of Core::io.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, Core& core) : core_(core), stream_(std::move(socket)), quiet_timer_(core.io) {}

  void start();
  void refuse(int status, std::string_view message);
  // Closes where no whole request has come yet: a peer that never finishes its own would hold up the end.
  void close_unless_answering() {
    if (state_ == State::waiting || state_ == State::reading) close();
  }
  void close();
  bool waits() const { return state_ == State::waiting; }
  std::chrono::steady_clock::time_point waiting_since() const { return waiting_since_; }

  // What an answer does; `exchange` says which, so that a late word of an earlier one is not heard.
  void send(uint64_t exchange, HttpResponse response);
  void begin(uint64_t exchange, const HttpResponse& head, std::string filler, std::chrono::milliseconds quiet);
  void write(uint64_t exchange, std::string_view bytes);
  void end(uint64_t exchange);
  void abandon(uint64_t exchange);
  void when_closed(uint64_t exchange, std::function<void()> callback);
  void describe(uint64_t exchange, std::function<std::string()> note);

 private:
  void read_header();
  void greet();
  void read_body();
  void read_failed(error_code failure);
  void dispatch();
  void watch_peer();
  void enqueue(std::string bytes);
  void write_queue();
  void write_some();
  void written(error_code failure);
  void finish_exchange();
  void linger();
  void begin_record();
  void restart_quiet_timer();
  std::string framed(std::string_view bytes) const;
  bool current(uint64_t exchange) const { return state_ == State::answering && exchange == exchange_ && !ended_; }

  // waiting for a request's header; its body; a handler's answer, also while the last of it is written; the peer to
  // close
  enum class State : uint8_t { waiting, reading, answering, lingering, closed };

  Core& core_;  // outlives its connections: what waits in its queues does not keep it alive
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  net::steady_timer quiet_timer_;
  std::chrono::milliseconds quiet_{0};
  std::string filler_;
  std::deque<std::string> queue_;
  std::string writing_text_;
  size_t written_bytes_ = 0;  // of it
  std::array<char, 4096> scrap_;
  std::function<void()> closed_callback_;
  OpenRecord record_;
  uint64_t exchange_ = 0;
  State state_ = State::answering;
  std::chrono::steady_clock::time_point waiting_since_;
  bool writing_ = false;
  bool keep_alive_ = false;
  bool chunked_ = true;
  bool head_only_ = false;
  bool begun_ = false;
  bool ended_ = true;
};

// The handle that handlers hold.
class Exchange : public Reply {
 public:
  Exchange(std::shared_ptr<Core> core, std::shared_ptr<Connection> connection, uint64_t id)
      : core_(std::move(core)), connection_(std::move(connection)), id_(id) {}
  ~Exchange() override {
    if (!over_.load()) on_io([id = id_](Connection& c) { c.abandon(id); });
  }
  void send(HttpResponse response) override {
    over_ = true;
    on_io([id = id_, r = std::move(response)](Connection& c) mutable { c.send(id, std::move(r)); });
  }
  void begin(HttpResponse head, std::string filler, std::chrono::milliseconds quiet) override {
    on_io([id = id_, h = std::move(head), f = std::move(filler), quiet](Connection& c) { c.begin(id, h, f, quiet); });
  }
  void write(std::string bytes) override {
    on_io([id = id_, b = std::move(bytes)](Connection& c) { c.write(id, b); });
  }
  void end() override {
    over_ = true;
    on_io([id = id_](Connection& c) { c.end(id); });
  }
  void post(std::function<void()> work) override {
    on_io([w = std::move(work)](Connection&) { w(); });
  }
  void when_closed(std::function<void()> callback) override {
    on_io([id = id_, f = std::move(callback)](Connection& c) mutable { c.when_closed(id, std::move(f)); });
  }
  void describe(std::function<std::string()> note) override {
    on_io([id = id_, f = std::move(note)](Connection& c) mutable { c.describe(id, std::move(f)); });
  }

 private:
  template <class Work>
  void on_io(Work work) {
    if (core_->stopped.load()) return;
    net::post(core_->io, [connection = connection_, w = std::move(work)]() mutable { w(*connection); });
  }

  std::shared_ptr<Core> core_;
  std::shared_ptr<Connection> connection_;  // goes before the core
  uint64_t id_;
  std::atomic<bool> over_ = false;
};

bool Core::close_longest_waiting(const Connection* except) {
  std::shared_ptr<Connection> longest;
  for (const auto& [key, weak] : connections)
    if (auto one = weak.lock(); one && key != except && one->waits())
      if (!longest || one->waiting_since() < longest->waiting_since()) longest = std::move(one);
  if (longest) longest->close();
  return longest != nullptr;
}

void Connection::start() {
  core_.connections.emplace(this, weak_from_this());
  core_.count();
  error_code ignored;
  stream_.socket().set_option(tcp::no_delay(true), ignored);
  stream_.socket().non_blocking(true, ignored);
  if (core_.connections.size() > core_.options.connections && !core_.close_longest_waiting(this))
    return refuse(503, "too many connections. Try again later");
  read_header();
}

// Answers what never reaches a handler, and closes.
void Connection::refuse(int status, std::string_view message) {
  if (!record_.is_open()) begin_record();
  state_ = State::answering;
  ++exchange_;
  ended_ = false;
  begun_ = false;
  keep_alive_ = false;
  head_only_ = false;
  send(exchange_,
       core_.options.refuse ? core_.options.refuse(status, message) : HttpResponse{status, {}, std::string(message)});
}

void Connection::close() {
  if (state_ == State::closed) return;
  state_ = State::closed;
  record_.end(false, core_.options.record);
  quiet_timer_.cancel();
  stream_.close();
  core_.connections.erase(this);
  core_.count();
  if (const auto callback = std::exchange(closed_callback_, nullptr); callback && !ended_) callback();
}

void Connection::read_header() {
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(core_.options.header_bytes));
  parser_->body_limit(core_.options.body_bytes);
  state_ = State::waiting;
  waiting_since_ = std::chrono::steady_clock::now();
  stream_.expires_after(core_.options.header_timeout);
  http::async_read_header(stream_, buffer_, *parser_, [self = shared_from_this()](error_code failure, size_t) {
    if (self->state_ == State::closed) return;
    self->state_ = State::reading;
    if (failure) return self->read_failed(failure);
    self->begin_record();
    if (!readable_encoding(self->parser_->get()))
      return self->refuse(501, "Transfer-Encoding: only chunked is read. Send it so, or with a Content-Length");
    self->greet();
  });
}

// A client that asks whether to send its body is told to.
void Connection::greet() {
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  const auto expect = parser_->get()[http::field::expect];
  if (parser_->is_done() || !beast::iequals(expect, "100-continue")) return read_body();
  stream_.expires_after(core_.options.write_timeout);
  net::async_write(stream_, net::buffer(kContinue), [self = shared_from_this()](error_code failure, size_t) {
    if (self->state_ == State::closed) return;
    if (failure) return self->close();
    self->read_body();
  });
}

void Connection::read_body() {
  stream_.expires_after(core_.options.body_timeout);
  http::async_read(stream_, buffer_, *parser_, [self = shared_from_this()](error_code failure, size_t) {
    if (self->state_ == State::closed) return;
    if (failure) return self->read_failed(failure);
    self->dispatch();
  });
}

void Connection::read_failed(error_code failure) {
  const auto& o = core_.options;
  if (failure == http::error::header_limit)
    return refuse(431, fmt::format("the headers are longer than {} bytes", o.header_bytes));
  if (failure == http::error::body_limit)
    return refuse(413, fmt::format("the body is longer than {} bytes", o.body_bytes));
  const bool spoken = failure.category() == make_error_code(http::error::bad_version).category();
  if (!spoken || failure == http::error::end_of_stream || failure == http::error::partial_message) return close();
  refuse(400, fmt::format("not an HTTP request: {}", failure.message()));
}

void Connection::dispatch() {
  stream_.expires_never();
  ++exchange_;
  auto message = parser_->release();
  keep_alive_ = message.keep_alive() && !core_.draining.load();
  chunked_ = message.version() >= 11;
  head_only_ = message.method() == http::verb::head;
  begun_ = false;
  ended_ = false;
  state_ = State::answering;
  watch_peer();
  auto exchange = std::make_shared<Exchange>(core_.shared_from_this(), shared_from_this(), exchange_);
  net::post(core_.workers, [core = &core_, exchange, request = to_request(std::move(message))]() mutable {
    try {
      core->handler(std::move(request), exchange);
    } catch (const std::exception& e) {  // out of memory: the exchange answers 500 as it goes
      fmt::print(stderr, "onw: a request failed: {}\n", e.what());
    }
  });
}

// Learns of a peer that goes away while its answer is being made. Bytes of a next request end the watch.
void Connection::watch_peer() {
  stream_.socket().async_wait(
      tcp::socket::wait_read, [self = shared_from_this(), exchange = exchange_](error_code failure) {
        if (failure || !self->current(exchange)) return;
        char byte = 0;
        error_code peeked;
        self->stream_.socket().receive(net::buffer(&byte, 1), tcp::socket::message_peek, peeked);
        if (peeked == net::error::would_block) return self->watch_peer();
        if (peeked) self->close();
      });
}

void Connection::begin_record() {
  if (parser_)
    record_.begin(std::string(parser_->get().method_string()), std::string(parser_->get().target()));
  else
    record_.begin("", "");
}

void Connection::send(uint64_t exchange, HttpResponse response) {
  if (!current(exchange)) return;
  record_.set_status(response.status);
  ended_ = true;
  keep_alive_ = keep_alive_ && !core_.draining.load();
  const bool bare = response.status == 204 || response.status == 304;
  const auto framing = bare ? std::string() : fmt::format("Content-Length: {}\r\n", response.body.size());
  enqueue(response_head(response, framing, keep_alive_) + (head_only_ || bare ? std::string() : response.body));
}

void Connection::begin(uint64_t exchange, const HttpResponse& head, std::string filler,
                       std::chrono::milliseconds quiet) {
  if (!current(exchange) || begun_) return;
  record_.set_status(head.status);
  begun_ = true;
  filler_ = std::move(filler);
  quiet_ = quiet;
  keep_alive_ = keep_alive_ && chunked_ && !core_.draining.load();
  enqueue(response_head(head, chunked_ ? "Transfer-Encoding: chunked\r\n" : "", keep_alive_));
  restart_quiet_timer();
}

std::string Connection::framed(std::string_view bytes) const {
  return chunked_ ? fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes) : std::string(bytes);
}

void Connection::write(uint64_t exchange, std::string_view bytes) {
  if (!current(exchange) || bytes.empty()) return;
  if (!head_only_) enqueue(framed(bytes));
  restart_quiet_timer();
}

void Connection::end(uint64_t exchange) {
  if (!current(exchange)) return;
  ended_ = true;
  quiet_timer_.cancel();
  enqueue(chunked_ && !head_only_ ? "0\r\n\r\n" : "");
}

// The handler let go of its reply without an end.
void Connection::abandon(uint64_t exchange) {
  if (!current(exchange)) return;
  if (begun_) return close();
  const std::string message = "the server failed while answering. Its log says more";
  keep_alive_ = false;
  send(exchange, core_.options.refuse ? core_.options.refuse(500, message) : HttpResponse{500, {}, message});
}

void Connection::when_closed(uint64_t exchange, std::function<void()> callback) {
  if (exchange != exchange_ || ended_) return;
  if (state_ == State::closed) return callback();
  closed_callback_ = std::move(callback);
}

void Connection::describe(uint64_t exchange, std::function<std::string()> note) {
  if (current(exchange)) record_.describe(std::move(note));
}

void Connection::restart_quiet_timer() {
  if (quiet_.count() == 0 || filler_.empty()) return;
  quiet_timer_.expires_after(quiet_);
  quiet_timer_.async_wait([self = shared_from_this(), exchange = exchange_](error_code failure) {
    if (!failure) self->write(exchange, std::string(self->filler_));
  });
}

void Connection::enqueue(std::string bytes) {
  queue_.push_back(std::move(bytes));
  if (!writing_) write_queue();
}

void Connection::write_queue() {
  writing_ = true;
  writing_text_.clear();
  for (const auto& part : queue_) writing_text_ += part;
  queue_.clear();
  written_bytes_ = 0;
  write_some();
}

// Piece by piece, so that the time-out counts from the last byte that the peer took: a slow one may take its time, but
// not while the server wants to end.
void Connection::write_some() {
  if (written_bytes_ == 0 || !core_.draining.load()) stream_.expires_after(core_.options.write_timeout);
  const auto rest = net::buffer(writing_text_) + written_bytes_;
  stream_.async_write_some(rest, [self = shared_from_this()](error_code failure, size_t bytes) {
    self->written_bytes_ += bytes;
    if (failure || self->written_bytes_ == self->writing_text_.size()) return self->written(failure);
    self->write_some();
  });
}

void Connection::written(error_code failure) {
  writing_ = false;
  if (state_ == State::closed) return;
  if (failure) return close();
  if (!queue_.empty()) return write_queue();
  if (ended_) return finish_exchange();
  if (begun_) stream_.expires_never();
}

void Connection::finish_exchange() {
  record_.end(true, core_.options.record);
  closed_callback_ = nullptr;
  filler_.clear();
  if (keep_alive_ && !core_.draining.load()) return read_header();
  error_code ignored;
  stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
  state_ = State::lingering;
  stream_.expires_after(kLinger);
  linger();
}

// Reads and forgets, so that the last answer is not lost to a reset; a peer that never closes is cut.
void Connection::linger() {
  stream_.async_read_some(net::buffer(scrap_), [self = shared_from_this()](error_code failure, size_t) {
    if (self->state_ == State::closed) return;
    if (failure) return self->close();
    self->linger();
  });
}

class BeastServer : public HttpServer {
 public:
  explicit BeastServer(HttpOptions options) : core_(std::make_shared<Core>(std::move(options))) {}
  ~BeastServer() override { stop(); }

  Result<void> bind_all();
  int port() const override { return port_; }
  std::vector<std::string> addresses() const override;
  void start(Handler handler) override;
  void drain() override;
  bool wait_drained(std::chrono::milliseconds most) override;
  void stop() override;

 private:
  Result<void> bind(const std::vector<net::ip::address>& addresses, int port);
  void accept(size_t i);

  std::shared_ptr<Core> core_;
  std::vector<tcp::acceptor> acceptors_;
  std::optional<net::executor_work_guard<net::io_context::executor_type>> guard_;
  std::thread thread_;
  int port_ = 0;
};

// localhost means both families: whoever says "localhost" must reach us and nobody else. Only a machine without IPv6
// is served on IPv4 alone.
Result<void> BeastServer::bind(const std::vector<net::ip::address>& addresses, int port) {
  acceptors_.clear();
  port_ = port;
  for (const auto& address : addresses) {
    const tcp::endpoint at(address, static_cast<uint16_t>(port_));
    const bool may_lack = address.is_v6() && addresses.size() > 1;
    tcp::acceptor acceptor(core_->io);
    error_code failure;
    acceptor.open(at.protocol(), failure);
    if (failure && may_lack) continue;
    if (!failure) acceptor.set_option(tcp::acceptor::reuse_address(true), failure);
    if (!failure && address.is_v6()) acceptor.set_option(net::ip::v6_only(true), failure);
    if (!failure) acceptor.bind(at, failure);
    if (failure == net::error::address_family_not_supported && may_lack) continue;
    if (failure.value() == boost::system::errc::address_not_available && may_lack) continue;
    if (!failure) acceptor.listen(net::socket_base::max_listen_connections, failure);
    if (failure) return bind_failure(at, failure);
    port_ = acceptor.local_endpoint().port();
    acceptors_.push_back(std::move(acceptor));
  }
  return {};
}

Result<void> BeastServer::bind_all() {
  const auto addresses = addresses_of(core_->options.host);
  RETURN_IF_ERROR(addresses);
  constexpr int kTries = 16;  // a free port of one family may be taken in the other
  Result<void> bound;
  for (int i = 0; i < (core_->options.port == 0 ? kTries : 1); ++i)
    if (bound = bind(*addresses, core_->options.port); bound) break;
  return bound;
}

std::vector<std::string> BeastServer::addresses() const {
  std::vector<std::string> all;
  for (const auto& acceptor : acceptors_) {
    error_code ignored;
    const auto at = acceptor.local_endpoint(ignored);
    const auto address = at.address().to_string();
    all.push_back(at.address().is_v6() ? fmt::format("[{}]:{}", address, port_) : fmt::format("{}:{}", address, port_));
  }
  return all;
}

void BeastServer::start(Handler handler) {
  core_->handler = std::move(handler);
  guard_.emplace(core_->io.get_executor());
  for (size_t i = 0; i < acceptors_.size(); ++i) accept(i);
  thread_ = std::thread([core = core_] { core->io.run(); });
}

void BeastServer::accept(size_t i) {
  acceptors_[i].async_accept([this, i](error_code failure, tcp::socket socket) {
    if (core_->draining.load()) return;
    if (!failure) std::make_shared<Connection>(std::move(socket), *core_)->start();
    if (!failure || failure == net::error::connection_aborted) return accept(i);
    if (failure == net::error::no_descriptors && core_->close_longest_waiting(nullptr)) return accept(i);
    auto pause = std::make_shared<net::steady_timer>(core_->io, std::chrono::milliseconds(100));
    pause->async_wait([this, i, pause](error_code cancelled) {
      if (!cancelled && !core_->draining.load()) accept(i);
    });
  });
}

void BeastServer::drain() {
  core_->draining = true;
  net::post(core_->io, [this] {
    error_code ignored;
    for (auto& acceptor : acceptors_) acceptor.close(ignored);
    auto all = core_->connections;
    for (auto& [key, weak] : all)
      if (const auto connection = weak.lock()) connection->close_unless_answering();
    core_->count();
  });
}

bool BeastServer::wait_drained(std::chrono::milliseconds most) {
  std::unique_lock lock(core_->mutex);
  return core_->emptied.wait_for(lock, most, [this] { return core_->open == 0; });
}

// First the connections, so that no request reaches the workers any more; then the workers; then the thread itself.
void BeastServer::stop() {
  if (!thread_.joinable()) return;
  core_->draining = true;
  std::promise<void> closed;
  net::post(core_->io, [this, &closed] {
    error_code ignored;
    for (auto& acceptor : acceptors_) acceptor.close(ignored);
    auto all = core_->connections;
    for (auto& [key, weak] : all)
      if (const auto connection = weak.lock()) connection->close();
    closed.set_value();
  });
  closed.get_future().wait();
  core_->workers.join();
  core_->stopped = true;
  guard_.reset();
  thread_.join();
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::listen(HttpOptions options) {
  auto server = std::make_unique<BeastServer>(std::move(options));
  RETURN_IF_ERROR(server->bind_all());
  return server;
}

}  // namespace onw::server
