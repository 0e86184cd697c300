// A connection of a test server, plain or with TLS, and the certificate that it shows.
#pragma once

#include <string>
#include <string_view>

struct evp_pkey_st;
struct ssl_ctx_st;
struct ssl_st;
struct x509_st;

namespace onw::testing {

// A fresh key and a certificate for 127.0.0.1 that was issued by itself, under a name.
class TlsIdentity {
 public:
  explicit TlsIdentity(std::string_view common_name);
  ~TlsIdentity();
  TlsIdentity(const TlsIdentity&) = delete;
  TlsIdentity& operator=(const TlsIdentity&) = delete;

  std::string pem() const;
  ssl_ctx_st* context() const { return context_; }

 private:
  evp_pkey_st* key_;
  x509_st* certificate_;
  ssl_ctx_st* context_;
};

// Owns an accepted descriptor.
class Socket {
 public:
  Socket(int descriptor, const TlsIdentity* tls);  // tls may be null
  ~Socket();
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  bool ready() const { return ready_; }  // false: the other side broke the TLS greeting off
  bool receive(char& c);
  void send(std::string_view bytes);

 private:
  int descriptor_;
  ssl_st* ssl_ = nullptr;
  bool ready_ = true;
};

}  // namespace onw::testing
