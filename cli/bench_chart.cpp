#include "cli/bench_chart.h"

#include <fmt/format.h>

#include <algorithm>

namespace onw::cli {
namespace {

constexpr int kLeft = 160, kBar = 420, kRow = 26, kTop = 44, kRight = 240;

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

}  // namespace

std::string bar_chart(const std::string& title, const std::vector<Bar>& bars) {
  double scale = 1;
  for (const auto& bar : bars) scale = std::max(scale, bar.share);
  const int height = kTop + static_cast<int>(bars.size()) * kRow + 16;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" font-family=\"sans-serif\" "
      "font-size=\"13\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n<text x=\"12\" y=\"24\" font-size=\"15\">{}</text>\n",
      kLeft + kBar + kRight, height, escaped(title));
  const int roof = kLeft + static_cast<int>(kBar / scale);
  svg += fmt::format("<line x1=\"{0}\" y1=\"{1}\" x2=\"{0}\" y2=\"{2}\" stroke=\"#999\" stroke-dasharray=\"4\"/>\n",
                     roof, kTop - 8, height - 12);
  int y = kTop;
  for (const auto& bar : bars) {
    const int width = static_cast<int>(kBar * bar.share / scale);
    svg += fmt::format(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"18\" "
        "fill=\"#3572b0\"/><text x=\"{}\" y=\"{}\" fill=\"#444\">{}</text>\n",
        kLeft - 8, y + 14, escaped(bar.label), kLeft, y, width, std::max(kLeft + width, roof) + 8, y + 14,
        escaped(bar.note));
    y += kRow;
  }
  return svg + "</svg>\n";
}

}  // namespace onw::cli
