#include "cli/bench_profile.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/output.h"

namespace onw::cli {

void Profile::seen(const SeenOp& op) {
  const auto slash = op.label.find('/');
  const auto name = slash == std::string_view::npos ? op.label : op.label.substr(slash + 1);
  auto found = std::ranges::find_if(lines_, [&](const ProfileLine& l) { return l.op == op.kind && l.name == name; });
  if (found == lines_.end())
    found = lines_.insert(lines_.end(), {.op = std::string(op.kind), .name = std::string(name)});
  ++found->calls;
  found->seconds += op.seconds;
  found->weight_bytes += op.weight_bytes;
  found->weight_ops += op.weight_ops;
}

std::vector<ProfileLine> Profile::lines(double whole_seconds) const {
  std::vector<ProfileLine> sorted = lines_;
  for (const auto& line : lines_) whole_seconds -= line.seconds;
  sorted.push_back({.op = "outside", .seconds = std::max(whole_seconds, 0.0)});
  std::ranges::sort(sorted, std::ranges::greater(), &ProfileLine::seconds);
  return sorted;
}

std::string profile_table(const std::vector<ProfileLine>& lines, int64_t steps) {
  double all = 0;
  for (const auto& line : lines) all += line.seconds;
  const auto rate = [](int64_t amount, double seconds, double unit) {
    return amount == 0 || seconds == 0 ? std::string()
                                       : fmt::format("{:.2f}", static_cast<double>(amount) / seconds / unit);
  };
  std::vector<std::vector<std::string>> rows = {{"OP", "NAME", "CALLS", "MS", "SHARE", "GB/S", "TOPS"}};
  for (const auto& line : lines)
    rows.push_back({line.op, line.name, fmt::format("{}", line.calls / steps),
                    fmt::format("{:.3f}", 1e3 * line.seconds / static_cast<double>(steps)),
                    fmt::format("{:.1f} %", 100 * line.seconds / all), rate(line.weight_bytes, line.seconds, 1e9),
                    rate(line.weight_ops, line.seconds, 1e12)});
  return table(rows);
}

}  // namespace onw::cli
