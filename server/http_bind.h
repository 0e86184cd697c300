// Where http.cpp listens, and why it cannot.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <string>
#include <vector>

#include "base/result.h"

namespace onw::server {

// The addresses that --host means: one, or both of localhost. Errors: usage.
Result<std::vector<boost::asio::ip::address>> addresses_of(const std::string& host);

// io: names address and port, and what to do.
Failure bind_failure(const boost::asio::ip::tcp::endpoint& at, const boost::system::error_code& failure);

}  // namespace onw::server
