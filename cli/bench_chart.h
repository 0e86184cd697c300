// Shares of a roof as a picture.
#pragma once

#include <string>
#include <vector>

namespace onw::cli {

struct Bar {
  std::string label;
  std::string note;
  double share = 0;  // of the roof; the scale goes to 1, or to the largest share
};

// An SVG document.
std::string bar_chart(const std::string& title, const std::vector<Bar>& bars);

}  // namespace onw::cli
