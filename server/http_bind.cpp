#include "server/http_bind.h"

#include <fmt/format.h>

namespace onw::server {

Result<std::vector<boost::asio::ip::address>> addresses_of(const std::string& host) {
  if (host == "localhost")
    return std::vector<boost::asio::ip::address>{boost::asio::ip::make_address("127.0.0.1"),
                                                 boost::asio::ip::make_address("::1")};
  std::string bare = host;
  if (bare.size() > 2 && bare.front() == '[' && bare.back() == ']') bare = bare.substr(1, bare.size() - 2);
  boost::system::error_code failure;
  const auto address = boost::asio::ip::make_address(bare, failure);
  if (failure)
    return error(Code::usage, "--host: '{}' is not an address. Use localhost, 0.0.0.0 or an address of this machine",
                 host);
  return std::vector<boost::asio::ip::address>{address};
}

Failure bind_failure(const boost::asio::ip::tcp::endpoint& at, const boost::system::error_code& failure) {
  const auto address = at.address().to_string();
  if (failure == boost::asio::error::address_in_use)
    return error(Code::io,
                 "port {} of {} is taken by another program (another onw serve?). Stop that one, or choose another "
                 "port: --port {}",
                 at.port(), address, at.port() < 65535 ? at.port() + 1 : 8000);
  if (failure == boost::asio::error::access_denied)
    return error(Code::io, "port {} of {} needs privileges. Choose one above 1023: --port 8000", at.port(), address);
  return error(Code::io, "cannot listen on port {} of {}: {}", at.port(), address, failure.message());
}

}  // namespace onw::server
