#include "runtime/self_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace onw {
namespace {

constexpr int kTogether = 12, kSingle = 4;
constexpr double kMostKl = 0.2;       // mean, in nats
constexpr double kAsLikely = 0.1;     // another first token is the same one if the CPU gives it so much less at most
constexpr double kLeastFirst = 0.75;  // of the rows

// Tokens from all over the vocabulary, the same ones each time.
int32_t token_at(int64_t i, int64_t vocabulary) {
  const uint64_t mixed = (static_cast<uint64_t>(i) + 1) * 0x9E3779B97F4A7C15U;
  return static_cast<int32_t>((mixed >> 33) % static_cast<uint64_t>(vocabulary));
}

Result<std::vector<float>> first_rows(Executable& target, const CancelToken& cancel) {
  auto sequence = target.new_sequence();
  RETURN_IF_ERROR(sequence);
  Sequence* const only = sequence->get();
  std::vector<float> logits;
  const int together = std::min(kTogether, target.info().max_step_rows);
  for (int64_t at = 0; at < together + kSingle;) {
    std::vector<Row> rows;
    for (int64_t n = at == 0 ? together : 1; n > 0; --n, ++at)
      rows.push_back(text_row(0, at, token_at(at, target.info().vocabulary), true));
    const auto out = target.run({.sequences = {&only, 1}, .rows = rows}, cancel);
    RETURN_IF_ERROR(out);
    logits.insert(logits.end(), out->logits.begin(), out->logits.end());
    (*sequence)->commit(static_cast<int>(rows.size()));
  }
  return logits;
}

std::vector<double> log_softmax(std::span<const float> logits) {
  const double most = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - most);
  std::vector<double> logs;
  logs.reserve(logits.size());
  for (const float x : logits) logs.push_back(x - most - std::log(sum));
  return logs;
}

size_t first_token(const std::vector<double>& logs) {
  return static_cast<size_t>(std::ranges::max_element(logs) - logs.begin());
}

}  // namespace

Result<SelfCheck> compare_first_rows(Executable& device, Executable& cpu, const CancelToken& cancel) {
  const auto theirs = first_rows(device, cancel);
  RETURN_IF_ERROR(theirs);
  const auto ours = first_rows(cpu, cancel);
  RETURN_IF_ERROR(ours);
  if (theirs->size() != ours->size()) return error(Code::numerics, "it gives another number of logits than the CPU");
  SelfCheck check;
  const auto width = static_cast<size_t>(cpu.info().vocabulary);
  for (size_t at = 0; at < ours->size(); at += width) {
    const auto p = log_softmax(std::span(*ours).subspan(at, width)),
               q = log_softmax(std::span(*theirs).subspan(at, width));
    double kl = 0;
    for (size_t i = 0; i < width; ++i) kl += std::exp(p[i]) * (p[i] - q[i]);
    check.mean_kl += kl;
    if (std::exp(p[first_token(p)]) - std::exp(p[first_token(q)]) <= kAsLikely) ++check.same_first;
    ++check.rows;
  }
  check.mean_kl /= check.rows;
  return check;
}

Result<void> judge(const SelfCheck& c, std::string_view device) {
  if (c.mean_kl <= kMostKl && c.same_first >= kLeastFirst * c.rows) return {};  // false for a KL that is no number
  return error(Code::numerics,
               "the {} computes something else than the CPU (KL {:.3g}, at most {}; the same first token in {} of {} "
               "rows): its driver or compiler errs with this model. Update the driver and OpenVINO, after which it is "
               "tried again; onw compile MODEL --again compiles and tries anew without that",
               device, c.mean_kl, kMostKl, c.same_first, c.rows);
}

std::optional<SelfCheck> KeptCheck::read() const {
  std::optional<SelfCheck> found;
  for (const std::string& key : keys_) {
    const auto record = store_.find(key);
    if (!record || !record->self_check) return std::nullopt;
    const openvino::BlobCheck& c = *record->self_check;
    if (found && (c.rows != found->rows || c.mean_kl != found->mean_kl || c.same_first != found->same_first))
      return std::nullopt;
    found = SelfCheck{.rows = c.rows, .mean_kl = c.mean_kl, .same_first = c.same_first};
  }
  return found;
}

void KeptCheck::write(const SelfCheck& c, bool passed) const {
  const double kl = std::isfinite(c.mean_kl) ? c.mean_kl : 1e9;
  for (const std::string& key : keys_)
    (void)store_.note_self_check(key, {.passed = passed, .rows = c.rows, .mean_kl = kl, .same_first = c.same_first});
}

Speeds KeptCheck::speeds() const {
  std::optional<Speeds> found;
  const auto pair = [](double device, double cpu) {
    return device > 0 && cpu > 0 ? std::optional(StepSeconds{.device = device, .standby = cpu}) : std::nullopt;
  };
  for (const std::string& key : keys_) {
    const auto record = store_.find(key);
    if (!record || !record->self_check) return {};
    const openvino::BlobCheck& c = *record->self_check;
    const Speeds s{.tokens = pair(c.device_seconds, c.cpu_seconds),
                   .prompts = pair(c.device_prompt_seconds, c.cpu_prompt_seconds)};
    if (found && *found != s) return {};
    found = s;
  }
  return found.value_or(Speeds());
}

void KeptCheck::note_speeds(const Speeds& s) const {
  const StepSeconds tokens = s.tokens.value_or(StepSeconds()), prompts = s.prompts.value_or(StepSeconds());
  for (const std::string& key : keys_) {
    const auto record = store_.find(key);
    if (!record || !record->self_check) continue;
    openvino::BlobCheck check = *record->self_check;
    check.device_seconds = tokens.device;
    check.cpu_seconds = tokens.standby;
    check.device_prompt_seconds = prompts.device;
    check.cpu_prompt_seconds = prompts.standby;
    (void)store_.note_self_check(key, check);
  }
}

Result<void> check_once(const KeptCheck& kept, Executable& device, Executable& cpu, std::string_view name,
                        const CancelToken& cancel) {
  if (const auto known = kept.read()) return judge(*known, name);
  const auto check = compare_first_rows(device, cpu, cancel);
  if (!check && check.error().code == Code::cancelled) return Failure(check.error());
  if (!check)
    return error(check.error().code, "its first rows, which are compared with the CPU's, fail: {}",
                 check.error().message);
  auto verdict = judge(*check, name);
  kept.write(*check, verdict.has_value());
  return verdict;
}

}  // namespace onw
