#include "hub/http.h"

// The option that limits protocols was renamed in libcurl 7.85; the old name works in every version.
#define CURL_DISABLE_DEPRECATION
#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "base/version.h"
#include "hub/route.h"

namespace onw {
namespace {

constexpr long kRedirects = 8;

struct CurlDelete {
  void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using Curl = std::unique_ptr<CURL, CurlDelete>;
using Headers = std::unique_ptr<curl_slist, CurlDelete>;

struct Transfer {
  const BodySink& sink;
  const std::function<bool()>& idle;
  HttpResponse response;
  bool first = true;  // still inside the first response
  bool cancelled = false;
  Route route;
};

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

// "HTTP/1.1 302 Found" begins a response; an interim one (1xx) and a proxy's answer to CONNECT count as on the way.
size_t on_header(char* data, size_t, size_t bytes, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const std::string_view line(data, bytes);
  if (line.starts_with("HTTP/")) {
    const auto space = line.find(' ');
    transfer.response.status = space == line.npos ? 0 : std::atoi(std::string(line.substr(space + 1)).c_str());
    if (!transfer.response.first_headers.empty()) transfer.first = false;
    return bytes;
  }
  const auto colon = line.find(':');
  if (colon == line.npos) return bytes;
  const auto name = lower(trim(line.substr(0, colon)));
  const std::string value(trim(line.substr(colon + 1)));
  transfer.response.headers[name] = value;
  if (transfer.first) transfer.response.first_headers[name] = value;
  return bytes;
}

size_t on_body(char* data, size_t, size_t bytes, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  if (transfer.response.status >= 300 && transfer.response.status < 400) return bytes;  // the text of a redirect
  if (transfer.sink(transfer.response, {data, bytes})) return bytes;
  transfer.cancelled = true;
  return 0;
}

int on_progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  auto& transfer = *static_cast<Transfer*>(user);
  if (!transfer.idle || transfer.idle()) return 0;
  transfer.cancelled = true;
  return 1;
}

int on_talk(CURL*, curl_infotype kind, char* data, size_t bytes, void* user) {
  if (kind == CURLINFO_TEXT) static_cast<Transfer*>(user)->route.hear({data, bytes});
  return 0;
}

std::string text_of(CURL* curl, CURLINFO what) {
  const char* value = nullptr;
  return curl_easy_getinfo(curl, what, &value) == CURLE_OK && value != nullptr ? value : "";
}

std::string host_of(std::string_view url) {
  const auto start = url.find("://");
  const auto host = start == url.npos ? url : url.substr(start + 3);
  return without_secrets(host.substr(0, host.find_first_of("/?#")));
}

// The system's certificates; SSL_CERT_FILE replaces them, as in other programs.
void trust_system(CURL* curl) {
  if (const char* file = std::getenv("SSL_CERT_FILE"); file != nullptr && *file != '\0') {
    curl_easy_setopt(curl, CURLOPT_CAINFO, file);
    curl_easy_setopt(curl, CURLOPT_CAPATH, nullptr);
  }
}

Curl new_curl(const std::string& url) {
  static std::once_flag once;
  std::call_once(once, [] { CHECK(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK); });
  Curl curl(curl_easy_init());
  CHECK(curl != nullptr);
  curl_easy_setopt(curl.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
  trust_system(curl.get());
  return curl;
}

// The name of who issued the certificate of `url`'s host, learnt by a connection on which nothing is sent.
std::string issuer_of(const std::string& url) {
  const Curl curl = new_curl(url);
  curl_easy_setopt(curl.get(), CURLOPT_CONNECT_ONLY, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_CERTINFO, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_SSL_VERIFYPEER, 0L);
  curl_easy_setopt(curl.get(), CURLOPT_CONNECTTIMEOUT, 10L);
  curl_certinfo* chain = nullptr;
  if (curl_easy_perform(curl.get()) != CURLE_OK ||
      curl_easy_getinfo(curl.get(), CURLINFO_CERTINFO, &chain) != CURLE_OK || chain == nullptr ||
      chain->num_of_certs == 0)
    return "an unknown issuer";
  for (const curl_slist* entry = chain->certinfo[chain->num_of_certs - 1]; entry != nullptr; entry = entry->next)
    if (const std::string_view text(entry->data); text.starts_with("Issuer:"))
      return fmt::format("'{}'", text.substr(7));
  return "an unknown issuer";
}

std::string proxy_wants_a_password(const Route& route) {
  return fmt::format("the proxy {} ({}) wants a name and a password. Set {} to http://NAME:PASSWORD@HOST:PORT",
                     route.proxy(), route.variable(), route.variable());
}

// What to do where nothing answers.
std::string way_out(const Route& route, std::string_view url) {
  if (route.through_proxy()) return fmt::format("Is {} right, and the proxy running?", route.variable());
  return fmt::format("Is there a network? Where a proxy leads out of it, set {}",
                     url.starts_with("http://") ? "http_proxy" : "HTTPS_PROXY");
}

HttpFailure explain(CURLcode code, CURL* curl, const HttpRequest& request, const Route& route, const char* detail) {
  std::string url = text_of(curl, CURLINFO_EFFECTIVE_URL);
  if (url.empty()) url = request.url;
  const std::string host = host_of(url);
  const std::string what = without_secrets(*detail != '\0' ? detail : curl_easy_strerror(code));
  const auto failure = [](bool may_pass, Code kind, std::string message) {
    return HttpFailure{Error{kind, std::move(message)}, may_pass};
  };
  long connect_status = 0;  // what a proxy said to CONNECT
  curl_easy_getinfo(curl, CURLINFO_HTTP_CONNECTCODE, &connect_status);
  if (connect_status == 407) return failure(false, Code::network, proxy_wants_a_password(route));
  if (connect_status >= 400)
    return failure(status_may_pass(static_cast<int>(connect_status)), Code::network,
                   fmt::format("the proxy {} ({}) makes no connection to {}: it answers {}", route.proxy(),
                               route.variable(), host, connect_status));
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
      return failure(true, Code::network,
                     fmt::format("no address is known for {}, tried {}. {}", host, route.text(), way_out(route, url)));
    case CURLE_COULDNT_RESOLVE_PROXY:
      return failure(false, Code::network,
                     fmt::format("{} could not be asked {}: {}. {}", host, route.text(), what, way_out(route, url)));
    case CURLE_COULDNT_CONNECT:
      return failure(
          true, Code::network,
          fmt::format("no connection to {}, tried {}: {}. {}", host, route.text(), what, way_out(route, url)));
    case CURLE_PEER_FAILED_VERIFICATION:
      return failure(
          false, Code::network,
          fmt::format(
              "the certificate of {} is not trusted: it was issued by {} ({}). If that is your organisation's proxy, "
              "add its certificate to the system's (a .crt file in /usr/local/share/ca-certificates, then "
              "update-ca-certificates), or name a file of certificates in SSL_CERT_FILE",
              host, issuer_of(url), what));
    case CURLE_SSL_CACERT_BADFILE:
      return failure(
          false, Code::network,
          fmt::format(
              "the file of trusted certificates cannot be read ({}). Install the package ca-certificates, or set "
              "SSL_CERT_FILE to a readable file",
              what));
    case CURLE_TOO_MANY_REDIRECTS:
      return failure(false, Code::network, fmt::format("{} redirects more than {} times", host, kRedirects));
    case CURLE_UNSUPPORTED_PROTOCOL:
      return failure(false, Code::network, fmt::format("{} leads to an address that is neither http nor https", host));
    case CURLE_OPERATION_TIMEDOUT:
      return failure(
          true, Code::network,
          fmt::format("{} did not answer in time, tried {}: {}. {}", host, route.text(), what, way_out(route, url)));
    default:
      return failure(true, Code::network,
                     fmt::format("the transfer from {} broke off{}: {}", host,
                                 route.through_proxy() ? ", " + route.text() : "", what));
  }
}

}  // namespace

tl::expected<HttpResponse, HttpFailure> http_get(const HttpRequest& request, const BodySink& sink,
                                                 const std::function<bool()>& idle) {
  Transfer transfer{sink, idle, {}, true, false, {}};
  const Curl curl = new_curl(request.url);
  Headers headers;
  if (!request.token.empty()) {  // libcurl leaves this header out when a redirect leads to another host
    headers.reset(curl_slist_append(nullptr, ("Authorization: Bearer " + request.token).c_str()));
    curl_easy_setopt(curl.get(), CURLOPT_HTTPHEADER, headers.get());
  }
  char detail[CURL_ERROR_SIZE] = "";
  const std::string range = fmt::format("{}-", request.from_byte);
  if (request.from_byte > 0) curl_easy_setopt(curl.get(), CURLOPT_RANGE, range.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_MAXREDIRS, kRedirects);
  curl_easy_setopt(curl.get(), CURLOPT_REDIR_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
  curl_easy_setopt(curl.get(), CURLOPT_USERAGENT, fmt::format("onw/{}", kVersion).c_str());
  curl_easy_setopt(curl.get(), CURLOPT_CONNECTTIMEOUT, static_cast<long>(request.connect_seconds));
  curl_easy_setopt(curl.get(), CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_LOW_SPEED_TIME, static_cast<long>(request.stall_seconds));
  curl_easy_setopt(curl.get(), CURLOPT_ERRORBUFFER, detail);
  curl_easy_setopt(curl.get(), CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(curl.get(), CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(curl.get(), CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl.get(), CURLOPT_XFERINFOFUNCTION, on_progress);
  curl_easy_setopt(curl.get(), CURLOPT_XFERINFODATA, &transfer);
  curl_easy_setopt(curl.get(), CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_VERBOSE, 1L);  // to on_talk alone
  curl_easy_setopt(curl.get(), CURLOPT_DEBUGFUNCTION, on_talk);
  curl_easy_setopt(curl.get(), CURLOPT_DEBUGDATA, &transfer);
  const CURLcode code = curl_easy_perform(curl.get());
  if (transfer.cancelled) return tl::unexpected(HttpFailure{Error{Code::cancelled, "cancelled"}, false});
  if (code != CURLE_OK) return tl::unexpected(explain(code, curl.get(), request, transfer.route, detail));
  transfer.response.url = text_of(curl.get(), CURLINFO_EFFECTIVE_URL);
  long status = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
  transfer.response.status = static_cast<int>(status);
  if (status == 407)
    return tl::unexpected(HttpFailure{Error{Code::network, proxy_wants_a_password(transfer.route)}, false});
  return std::move(transfer.response);
}

bool status_may_pass(int status) { return status == 408 || status == 429 || status >= 500; }

Error http_status_error(const HttpResponse& response, std::string_view what, bool token) {
  const std::string host = host_of(response.url);
  switch (response.status) {
    case 401:
    case 403:
      if (token)
        return {Code::network,
                fmt::format(
                    "{}: {} refuses access ({}) with the token in HF_TOKEN. Accept the model's licence on its page, "
                    "check the spelling, or take a token that may read it",
                    what, host, response.status)};
      return {
          Code::network,
          fmt::format("{}: {} refuses access ({}). Check the spelling; a model that is private or asks for a licence "
                      "needs a token in HF_TOKEN",
                      what, host, response.status)};
    case 404:
      return {Code::not_found, fmt::format("{}: {} does not have it. Check the spelling and the revision", what, host)};
    case 429:
      return {
          Code::network,
          fmt::format("{}: {} asks to come back later (429, too many requests). A token in HF_TOKEN raises the limit",
                      what, host)};
    default:
      return {Code::network, fmt::format("{}: {} answers with status {}", what, host, response.status)};
  }
}

}  // namespace onw
