#include "tests/tls_socket.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/result.h"

namespace onw::testing {
namespace {

constexpr long kValidSeconds = 3600;

void add_extension(X509* certificate, int kind, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value);
  CHECK(extension != nullptr && X509_add_ext(certificate, extension, -1) == 1);
  X509_EXTENSION_free(extension);
}

}  // namespace

TlsIdentity::TlsIdentity(std::string_view common_name)
    : key_(EVP_EC_gen("P-256")), certificate_(X509_new()), context_(SSL_CTX_new(TLS_server_method())) {
  CHECK(key_ != nullptr && certificate_ != nullptr && context_ != nullptr);
  X509_set_version(certificate_, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate_), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate_), -kValidSeconds);
  X509_gmtime_adj(X509_getm_notAfter(certificate_), kValidSeconds);
  X509_set_pubkey(certificate_, key_);
  X509_NAME* name = X509_get_subject_name(certificate_);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(common_name.data()),
                             static_cast<int>(common_name.size()), -1, 0);
  X509_set_issuer_name(certificate_, name);
  add_extension(certificate_, NID_subject_alt_name, "IP:127.0.0.1");
  add_extension(certificate_, NID_basic_constraints, "critical,CA:TRUE");
  CHECK(X509_sign(certificate_, key_, EVP_sha256()) > 0);
  CHECK(SSL_CTX_use_certificate(context_, certificate_) == 1 && SSL_CTX_use_PrivateKey(context_, key_) == 1);
}

TlsIdentity::~TlsIdentity() {
  SSL_CTX_free(context_);
  X509_free(certificate_);
  EVP_PKEY_free(key_);
}

std::string TlsIdentity::pem() const {
  BIO* memory = BIO_new(BIO_s_mem());
  CHECK(memory != nullptr && PEM_write_bio_X509(memory, certificate_) == 1);
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory, &data);
  std::string text(data, static_cast<size_t>(size));
  BIO_free(memory);
  return text;
}

Socket::Socket(int descriptor, const TlsIdentity* tls) : descriptor_(descriptor) {
  if (tls == nullptr) return;
  ssl_ = SSL_new(tls->context());
  ready_ = ssl_ != nullptr && SSL_set_fd(ssl_, descriptor_) == 1 && SSL_accept(ssl_) == 1;
  ERR_clear_error();
}

Socket::~Socket() {
  if (ssl_ != nullptr && ready_) SSL_shutdown(ssl_);
  SSL_free(ssl_);
  ::shutdown(descriptor_, SHUT_WR);
  ::close(descriptor_);
}

bool Socket::receive(char& c) {
  return ssl_ == nullptr ? ::recv(descriptor_, &c, 1, 0) == 1 : SSL_read(ssl_, &c, 1) == 1;
}

void Socket::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto sent = ssl_ == nullptr ? ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL)
                                      : SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size()));
    if (sent <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

}  // namespace onw::testing
