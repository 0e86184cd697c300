#include "server/http.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <atomic>
#include <future>
#include <thread>

#include "tests/http_client.h"

namespace onw::server {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

std::unique_ptr<HttpServer> listening(HttpOptions options = {}) {
  auto server = HttpServer::listen(std::move(options));
  EXPECT_TRUE(server.has_value()) << (server ? "" : server.error().message);
  return std::move(*server);
}

std::unique_ptr<HttpServer> serving(Handler handler, HttpOptions options = {}) {
  auto server = listening(std::move(options));
  server->start(std::move(handler));
  return server;
}

void echo(const HttpRequest& request, const ReplyPtr& reply) {
  reply->send({200, {{"X-Path", request.path}, {"X-Query", request.query}}, request.body});
}

TEST(Http, answers_requests_on_one_connection_one_after_another) {
  const auto server = serving(echo);
  Client client(server->port());
  for (int i = 0; i < 3; ++i) {
    client.send(request_text("POST", "/a/b?c=d", fmt::format("body {}", i)));
    const Answer a = client.answer();
    EXPECT_EQ(a.status, 200);
    EXPECT_EQ(a.headers.at("X-Path"), "/a/b");
    EXPECT_EQ(a.headers.at("X-Query"), "c=d");
    EXPECT_EQ(a.body, fmt::format("body {}", i));
    EXPECT_EQ(a.headers.at("Connection"), "keep-alive");
  }
}

TEST(Http, answers_requests_that_came_in_one_piece_in_order) {
  const auto server = serving(echo);
  Client client(server->port());
  client.send(request_text("POST", "/", "first") + request_text("POST", "/", "second"));
  EXPECT_EQ(client.answer().body, "first");
  EXPECT_EQ(client.answer().body, "second");
}

// Waits for so many records of a server.
class Records {
 public:
  std::function<void(const HttpRecord&)> taker() {
    return [this](const HttpRecord& r) {
      const std::lock_guard lock(mutex_);
      all_.push_back(r);
      changed_.notify_all();
    };
  }
  std::vector<HttpRecord> wait(size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(10), [&] { return all_.size() >= count; }));
    return all_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<HttpRecord> all_;
};

TEST(Http, records_every_request_once_also_those_that_no_handler_saw) {
  Records records;
  const auto server = serving(
      [](const HttpRequest& request, const ReplyPtr& reply) {
        reply->describe([] { return "described"; });
        if (request.path == "/lost") return;
        reply->send({201, {}, "body"});
      },
      {.body_bytes = 100, .record = records.taker()});
  Client first(server->port());
  first.send(request_text("POST", "/a?b=c", "x"));
  EXPECT_EQ(first.answer().status, 201);
  first.send(request_text("GET", "/lost", ""));
  EXPECT_EQ(first.answer().status, 500);
  Client large(server->port());
  large.send(request_text("POST", "/large", std::string(101, 'x')));
  EXPECT_EQ(large.answer().status, 413);
  Client wrong(server->port());
  wrong.send("no request\r\n\r\n");
  EXPECT_EQ(wrong.answer().status, 400);
  const auto all = records.wait(4);
  ASSERT_EQ(all.size(), 4U);
  const char* expected[] = {"POST /a 201 1 described", "GET /lost 500 1 described", "POST /large 413 1 ", "- - 400 1 "};
  for (size_t i = 0; i < all.size(); ++i)
    EXPECT_EQ(fmt::format("{} {} {} {:d} {}", all[i].method, all[i].path, all[i].status, all[i].whole, all[i].note),
              expected[i]);
}

TEST(Http, records_a_request_whose_body_never_came) {
  Records records;
  const auto server = serving(echo, {.record = records.taker()});
  Client(server->port()).send("POST /half HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf");
  const auto all = records.wait(1);
  EXPECT_EQ(all[0].path, "/half");
  EXPECT_EQ(all[0].status, 0);
  EXPECT_FALSE(all[0].whole);
}

TEST(Http, takes_chunked_bodies_and_tells_a_client_that_asks_to_go_on) {
  const auto server = serving(echo);
  Client client(server->port());
  client.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
  EXPECT_EQ(client.answer().body, "abcde");
  client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  ASSERT_TRUE(client.receive_until("100 Continue\r\n\r\n"));
  client.unread.clear();
  client.send("full");
  EXPECT_EQ(client.answer().body, "full");
}

TEST(Http, streams_chunks_in_the_order_of_the_calls) {
  const auto server = serving([](const HttpRequest&, const ReplyPtr& reply) {
    reply->begin({200, {{"Content-Type", "text/event-stream"}}, ""}, "", milliseconds(0));
    for (int i = 0; i < 100; ++i) reply->write(fmt::format("{} ", i));
    reply->end();
  });
  Client client(server->port());
  for (int round = 0; round < 2; ++round) {
    client.send(request_text("GET", "/"));
    const Answer a = client.answer();
    EXPECT_TRUE(a.complete);
    EXPECT_THAT(a.body, testing::EndsWith("98 99 "));
  }
}

TEST(Http, streams_to_an_old_client_without_chunks_and_closes) {
  const auto server = serving([](const HttpRequest&, const ReplyPtr& reply) {
    reply->begin({}, "", milliseconds(0));
    reply->write("one ");
    reply->write("two");
    reply->end();
  });
  Client client(server->port());
  client.send("GET / HTTP/1.0\r\n\r\n");
  const Answer a = client.answer();
  EXPECT_EQ(a.body, "one two");
  EXPECT_EQ(a.headers.count("Transfer-Encoding"), 0U);
}

TEST(Http, head_gets_the_headers_alone) {
  const auto server = serving(echo);
  Client client(server->port());
  client.send("HEAD /x HTTP/1.1\r\nHost: a\r\n\r\nGET /y HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(client.receive_until("X-Path: /y"));
  EXPECT_THAT(client.unread, HasSubstr("X-Path: /x"));
}

// server-108
TEST(Http, fills_a_quiet_stream_so_that_the_client_does_not_give_up) {
  std::promise<ReplyPtr> got;
  const auto server = serving([&](const HttpRequest&, const ReplyPtr& reply) {
    reply->begin({}, ": still here\n\n", milliseconds(20));
    got.set_value(reply);
  });
  Client client(server->port());
  client.send(request_text("GET", "/"));
  auto reply = got.get_future().get();
  std::this_thread::sleep_for(milliseconds(150));
  reply->post([&reply] {  // at once: a wait between the two calls would be a quiet time as well
    reply->write("data");
    reply->end();
  });
  const Answer a = client.answer();
  EXPECT_THAT(a.body, testing::StartsWith(": still here\n\n: still here\n\n"));
  EXPECT_THAT(a.body, testing::EndsWith("data"));
  reply.reset();
}

TEST(Http, says_so_when_the_peer_goes_away_before_the_end) {
  std::promise<void> gone;
  std::promise<ReplyPtr> got;
  const auto server = serving([&](const HttpRequest&, const ReplyPtr& reply) {
    reply->when_closed([&] { gone.set_value(); });
    got.set_value(reply);
  });
  Client client(server->port());
  client.send(request_text("GET", "/"));
  auto reply = got.get_future().get();
  client.close();
  EXPECT_EQ(gone.get_future().wait_for(std::chrono::seconds(5)), std::future_status::ready);
  reply->send({});  // nobody listens; nothing happens
}

TEST(Http, does_not_call_a_finished_answer_closed) {
  std::atomic<bool> called = false;
  const auto server = serving([&](const HttpRequest&, const ReplyPtr& reply) {
    reply->when_closed([&] { called = true; });
    reply->send({});
  });
  EXPECT_EQ(ask(server->port(), "GET", "/").status, 200);
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_FALSE(called);
}

TEST(Http, answers_500_for_a_handler_that_drops_its_reply_or_throws) {
  const auto server = serving([](const HttpRequest& request, const ReplyPtr& reply) {
    if (request.path == "/begun") reply->begin({}, "", milliseconds(0));
    if (request.path == "/throws") throw std::bad_alloc();
  });
  EXPECT_EQ(ask(server->port(), "GET", "/").status, 500);
  EXPECT_EQ(ask(server->port(), "GET", "/throws").status, 500);
  EXPECT_FALSE(ask(server->port(), "GET", "/begun").complete);
}

TEST(Http, refuses_what_is_too_large_or_not_http) {
  HttpOptions options;
  options.header_bytes = 1000;
  options.body_bytes = 1000;
  options.refuse = [](int status, std::string_view message) {
    return HttpResponse{status, {}, "refused: " + std::string(message)};
  };
  const auto server = serving(echo, options);
  EXPECT_EQ(ask(server->port(), "POST", "/", std::string(1000, 'x')).status, 200);
  const Answer body = ask(server->port(), "POST", "/", std::string(100'000, 'x'));
  EXPECT_EQ(body.status, 413);
  EXPECT_THAT(body.body, HasSubstr("refused: the body is longer than 1000 bytes"));
  EXPECT_EQ(ask(server->port(), "GET", "/", "", {"X: " + std::string(2000, 'x')}).status, 431);
  Client client(server->port());
  client.send("\x16\x03\x01\x02 hello TLS\r\n\r\n");
  EXPECT_EQ(client.answer().status, 400);
  EXPECT_EQ(ask(server->port(), "GET", "/").status, 200);
}

TEST(Http, cuts_peers_that_do_not_finish_their_request) {
  HttpOptions options;
  options.header_timeout = milliseconds(50);
  options.body_timeout = milliseconds(50);
  const auto server = serving(echo, options);
  Client header(server->port());
  header.send("GET / HT");
  EXPECT_FALSE(header.receive(milliseconds(3000)) || header.answer().complete);
  Client body(server->port());
  body.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf");
  EXPECT_FALSE(body.answer().complete);
}

TEST(Http, waits_for_a_peer_that_reads_slowly_and_not_for_one_that_reads_nothing) {
  Records records;
  const std::string body(24 << 20, 'x');  // more than the buffers of a connection hold
  const auto server = serving([&](const HttpRequest&, const ReplyPtr& reply) { reply->send({200, {}, body}); },
                              {.write_timeout = milliseconds(150), .record = records.taker()});
  Client slow(server->port());
  slow.send(request_text("GET", "/slow"));
  size_t read = 0;
  for (int i = 0; slow.receive(); ++i) {
    read += std::exchange(slow.unread, "").size();
    if (read > body.size()) break;
    if (i % 40 == 0) std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_GT(read, body.size());
  EXPECT_GT(records.wait(1)[0].seconds, 0.15);
  EXPECT_TRUE(records.wait(1)[0].whole);
  Client silent(server->port());
  silent.send(request_text("GET", "/silent"));
  EXPECT_FALSE(records.wait(2)[1].whole);
}

TEST(Http, answers_503_where_all_connections_are_busy) {
  std::mutex mutex;
  std::vector<ReplyPtr> kept;
  const auto server = serving(
      [&](const HttpRequest&, const ReplyPtr& reply) {
        const std::lock_guard lock(mutex);
        kept.push_back(reply);
      },
      {.connections = 2});
  const Client a(server->port());
  const Client b(server->port());
  a.send(request_text("GET", "/"));
  b.send(request_text("GET", "/"));
  for (size_t busy = 0; busy < 2;) {
    const std::lock_guard lock(mutex);
    busy = kept.size();
  }
  Client c(server->port());
  EXPECT_EQ(c.answer().status, 503);
  const std::lock_guard lock(mutex);
  kept.clear();
}

TEST(Http, makes_room_for_a_request_by_closing_who_has_been_idle_longest) {
  const auto server = serving(echo, {.connections = 3});
  Client idle(server->port());
  Client never_ends(server->port());
  never_ends.send("GET / HTTP/1.1\r\nX-A: ");
  Client used(server->port());
  used.send(request_text("GET", "/"));
  EXPECT_EQ(used.answer().status, 200);
  for (Client* gone : {&idle, &never_ends}) {
    Client next(server->port());
    next.send(request_text("GET", "/"));
    EXPECT_EQ(next.answer().status, 200);
    EXPECT_FALSE(gone->receive()) << "closed, without a word";
  }
  used.send(request_text("GET", "/"));
  EXPECT_EQ(used.answer().status, 200);
}

// server-120
TEST(Http, refuses_an_occupied_port_at_once_and_names_it) {
  const auto first = listening();
  HttpOptions options;
  options.port = first->port();
  const auto second = HttpServer::listen(options);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, Code::io);
  EXPECT_THAT(second.error().message, HasSubstr(fmt::format("port {} of 127.0.0.1 is taken", first->port())));
  EXPECT_THAT(second.error().message, HasSubstr(fmt::format("--port {}", first->port() + 1)));
}

// server-121
TEST(Http, takes_both_families_of_localhost_or_none) {
  HttpOptions options;
  options.host = "127.0.0.1";
  const auto only_ipv4 = listening(options);
  HttpOptions both;
  both.port = only_ipv4->port();
  EXPECT_FALSE(HttpServer::listen(both).has_value());

  options.host = "::1";
  const auto only_ipv6 = HttpServer::listen(options);
  if (!only_ipv6) GTEST_SKIP() << "this machine has no IPv6";
  both.port = (*only_ipv6)->port();
  EXPECT_FALSE(HttpServer::listen(both).has_value());
  EXPECT_THAT(listening()->addresses(), testing::SizeIs(2));
}

TEST(Http, says_what_an_address_may_be) {
  HttpOptions options;
  options.host = "not an address";
  const auto server = HttpServer::listen(options);
  ASSERT_FALSE(server.has_value());
  EXPECT_EQ(server.error().code, Code::usage);
  EXPECT_THAT(server.error().message, HasSubstr("'not an address'"));
}

TEST(Http, drains_answers_under_way_and_closes_the_idle) {
  std::promise<ReplyPtr> got;
  const auto server = serving([&](const HttpRequest&, const ReplyPtr& reply) {
    reply->begin({}, "", milliseconds(0));
    got.set_value(reply);
  });
  Client idle(server->port());
  Client busy(server->port());
  busy.send(request_text("GET", "/"));
  auto reply = got.get_future().get();
  server->drain();
  EXPECT_FALSE(idle.receive());
  reply->write("the rest");
  reply->end();
  reply.reset();
  EXPECT_EQ(busy.answer().body, "the rest");
  busy.close();
  server->wait_drained();
  EXPECT_FALSE(Client(server->port()).connected());
}

TEST(Http, drains_without_waiting_for_the_rest_of_a_request) {
  const auto server = serving(echo);
  Client header(server->port());
  header.send("POST / HT");
  Client body(server->port());
  body.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\nhalf");
  ASSERT_TRUE(body.receive_until("100 Continue\r\n\r\n"));  // its header has been read
  server->drain();
  EXPECT_TRUE(server->wait_drained(milliseconds(1000)));
}

TEST(Http, refuses_a_body_in_an_encoding_that_it_cannot_read) {
  const auto server = serving(echo);
  for (const char* encoding : {"gzip", "gzip, chunked", "identity", "chunked\r\nTransfer-Encoding: identity"}) {
    Client client(server->port());
    client.send(
        fmt::format("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: {}\r\n\r\n"
                    "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n",
                    encoding));
    const Answer a = client.answer();
    EXPECT_TRUE(a.status == 501 || a.status == 400) << encoding << ": " << a.status;
    EXPECT_FALSE(client.receive_until("/smuggled")) << encoding;
  }
}

TEST(Http, stops_at_once_with_answers_under_way) {
  std::promise<ReplyPtr> got;
  std::atomic<bool> gone = false;
  auto server = serving([&](const HttpRequest&, const ReplyPtr& reply) {
    reply->when_closed([&] { gone = true; });
    reply->begin({}, "", milliseconds(0));
    got.set_value(reply);
  });
  Client client(server->port());
  client.send(request_text("GET", "/"));
  const auto reply = got.get_future().get();
  server->stop();
  EXPECT_TRUE(gone);
  reply->write("to nobody");
  EXPECT_FALSE(client.answer().complete);
}

double cpu_seconds() {
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  return static_cast<double>(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
         static_cast<double>(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
}

// server-098
TEST(Http, idles_without_work) {
  const auto server = serving(echo);
  Client client(server->port());
  client.send(request_text("GET", "/"));
  client.answer();
  const double before = cpu_seconds();
  std::this_thread::sleep_for(milliseconds(1000));
  EXPECT_LT(cpu_seconds() - before, 0.005);  // 50 ms in 10 s
}

// server-095
TEST(Http, serves_many_clients_that_come_and_go) {
  const auto server = serving([](const HttpRequest& request, const ReplyPtr& reply) {
    if (request.path == "/stream") reply->begin({}, "", milliseconds(0));
    if (request.path != "/stream") return reply->send({200, {}, request.body});
    for (int i = 0; i < 50; ++i) reply->write("word ");
    reply->end();
  });
  std::vector<std::thread> threads;
  std::atomic<int> whole = 0;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        Client client(server->port());
        client.send(request_text("POST", (t + i) % 2 == 0 ? "/stream" : "/", "x"));
        if (i % 5 == 4) continue;  // leaves at once
        whole += client.answer().complete ? 1 : 0;
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(whole, 8 * 16);
}

}  // namespace
}  // namespace onw::server
