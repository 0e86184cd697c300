// The record of the request that a connection is busy with.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "server/http.h"

namespace onw::server {

class OpenRecord {
 public:
  // `target` with its query, or empty where no request line could be read.
  void begin(std::string_view method, std::string_view target) {
    record_.emplace();
    start_ = std::chrono::steady_clock::now();
    if (target.empty()) return;
    record_->method = std::string(method);
    record_->path = std::string(target.substr(0, target.find('?')));
  }
  bool is_open() const { return record_.has_value(); }
  void set_status(int status) {
    if (record_) record_->status = status;
  }
  void describe(std::function<std::string()> note) { note_ = std::move(note); }

  // Hands the record over, once.
  void end(bool whole, const std::function<void(const HttpRecord&)>& taker) {
    auto record = std::exchange(record_, std::nullopt);
    const auto note = std::exchange(note_, nullptr);
    if (!record || !taker) return;
    record->whole = whole;
    record->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    if (note) record->note = note();
    taker(*record);
  }

 private:
  std::optional<HttpRecord> record_;
  std::function<std::string()> note_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace onw::server
