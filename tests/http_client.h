// A client for tests that can do what real clients should not: half requests, wrong bytes, sudden ends.
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace onw::server {

struct Answer {
  int status = 0;
  std::map<std::string, std::string> headers;  // names as sent
  std::string body;                            // without chunk framing
  bool complete = false;                       // ended as its framing promised
};

class Client {
 public:
  explicit Client(int port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
  }
  ~Client() { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  bool send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

  // More bytes into `unread`; false at the end of the stream, or after `wait` without a byte.
  bool receive(std::chrono::milliseconds wait = std::chrono::seconds(10)) {
    pollfd ready{fd_, POLLIN, 0};
    if (::poll(&ready, 1, static_cast<int>(wait.count())) <= 0) return false;
    char block[16384];
    const ssize_t n = ::recv(fd_, block, sizeof block, 0);
    if (n <= 0) return false;
    unread.append(block, static_cast<size_t>(n));
    return true;
  }
  bool receive_until(std::string_view mark) {
    while (unread.find(mark) == std::string::npos)
      if (!receive()) return false;
    return true;
  }

  // The next answer on this connection.
  Answer answer() {
    Answer a;
    if (!receive_until("\r\n\r\n")) return a;
    const auto end = unread.find("\r\n\r\n");
    read_head(unread.substr(0, end), a);
    unread.erase(0, end + 4);
    if (a.headers.count("Content-Length") > 0) {
      const size_t n = std::stoul(a.headers["Content-Length"]);
      while (unread.size() < n)
        if (!receive()) return a;
      a.body = unread.substr(0, n);
      unread.erase(0, n);
      a.complete = true;
    } else if (a.headers.count("Transfer-Encoding") > 0) {
      a.complete = read_chunks(a.body);
    } else if (a.status == 204) {
      a.complete = true;
    } else {
      while (receive()) {
      }
      a.body = std::exchange(unread, {});
      a.complete = true;
    }
    return a;
  }

  std::string unread;

 private:
  static void read_head(const std::string& head, Answer& a) {
    if (head.size() > 12) a.status = std::atoi(head.c_str() + 9);
    size_t at = head.find("\r\n");
    while (at != std::string::npos) {
      const size_t next = head.find("\r\n", at + 2);
      const std::string line = head.substr(at + 2, next == std::string::npos ? next : next - at - 2);
      const auto colon = line.find(": ");
      if (colon != std::string::npos) a.headers[line.substr(0, colon)] = line.substr(colon + 2);
      at = next;
    }
  }
  bool read_chunks(std::string& body) {
    while (true) {
      if (!receive_until("\r\n")) return false;
      const auto end = unread.find("\r\n");
      const size_t n = std::strtoul(unread.c_str(), nullptr, 16);
      while (unread.size() < end + 2 + n + 2)
        if (!receive()) return false;
      body += unread.substr(end + 2, n);
      unread.erase(0, end + 2 + n + 2);
      if (n == 0) return true;
    }
  }

  int fd_;
  bool connected_ = false;
};

inline std::string request_text(std::string_view method, std::string_view path, std::string_view body = {},
                                const std::vector<std::string>& headers = {}, std::string_view host = "localhost") {
  std::string text = fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\n", method, path, host);
  for (const auto& header : headers) text += header + "\r\n";
  if (!body.empty()) text += fmt::format("Content-Length: {}\r\n", body.size());
  return text + "\r\n" + std::string(body);
}

// One request on a connection of its own.
inline Answer ask(int port, std::string_view method, std::string_view path, std::string_view body = {},
                  const std::vector<std::string>& headers = {}, std::string_view host = "localhost") {
  Client client(port);
  client.send(request_text(method, path, body, headers, host));
  return client.answer();
}

}  // namespace onw::server
