#include "quant/affine_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/half.h"
#include "quant/scale_search.h"

namespace onw {
namespace {

constexpr std::array kShrink = {1.0f, 0.85f, 0.7f, 0.55f};  // of either end of the interval
constexpr int kRefinements = 3;
constexpr size_t kLanes = 8;  // partial sums, so that the compiler may use vectors; groups are multiples of 32

using Lanes = std::array<float, kLanes>;

float total(const Lanes& sums) { return std::accumulate(sums.begin(), sums.end(), 0.0f); }

struct Line {
  float scale = 0, minimum = 0;
};

Line rounded(AffineScale at) { return {half_to_float(at.scale), half_to_float(at.minimum)}; }

bool usable(const Line& l) { return l.scale > 0 && std::isfinite(1 / l.scale) && std::isfinite(l.minimum); }

// A group and what each error counts, held in one buffer of the thread.
class Group {
 public:
  Group(std::span<const float> w, std::span<const float> importance) : w_(w), counts_(thread_buffer()) {
    Lanes squares{};
    for (size_t i = 0; i < w.size(); i += kLanes)
      for (size_t l = 0; l < kLanes; ++l) squares[l] += w[i + l] * w[i + l];
    const float rms = std::sqrt(total(squares) / static_cast<float>(w.size()));
    counts_.resize(w.size());
    for (size_t i = 0; i < w.size(); ++i)
      counts_[i] = (std::fabs(w[i]) + rms) * (importance.empty() ? 1.0f : importance[i]);
  }

  // The least-squares line through the codes of `l`, and by how much it explains the group better than the mean does.
  struct Fit {
    Line line;
    float explained = -1;
  };
  Fit fit(const Line& l, CodeRange range) const {
    Lanes c{}, cq{}, cqq{}, cw{}, cwq{};
    const float inverse = 1 / l.scale;
    for (size_t i = 0; i < w_.size(); i += kLanes)
      for (size_t k = 0; k < kLanes; ++k) {
        const float q = nearest_code((w_[i + k] - l.minimum) * inverse, range);
        const float counted = counts_[i + k], by_code = counted * q;
        c[k] += counted;
        cq[k] += by_code;
        cqq[k] += by_code * q;
        cw[k] += counted * w_[i + k];
        cwq[k] += by_code * w_[i + k];
      }
    const double n = total(c), q = total(cq), qq = total(cqq), sw = total(cw), wq = total(cwq);
    if (!(n > 0)) return {};
    const double spread = qq - q * q / n, common = wq - q * sw / n;
    if (!(spread > 0) || !(common > 0)) return {};
    const double scale = common / spread;
    return {{static_cast<float>(scale), static_cast<float>((sw - scale * q) / n)}, static_cast<float>(common * scale)};
  }

  float error(const Line& l, CodeRange range) const {
    Lanes sums{};
    for (size_t i = 0; i < w_.size(); i += kLanes)
      for (size_t k = 0; k < kLanes; ++k) {
        const float code = l.scale == 0 ? 0.0f : nearest_code((w_[i + k] - l.minimum) / l.scale, range);
        const float off = w_[i + k] - (l.scale * code + l.minimum);
        sums[k] += counts_[i + k] * off * off;
      }
    return total(sums);
  }

 private:
  static std::vector<float>& thread_buffer() {
    thread_local std::vector<float> buffer;
    return buffer;
  }

  std::span<const float> w_;
  std::vector<float>& counts_;
};

// The best of what was looked at, as F16 numbers.
class Best {
 public:
  Best(const Group& group, CodeRange range, AffineScale start)
      : group_(group), range_(range), at_(start), least_(group.error(rounded(start), range)) {}

  // Takes `l` where its F16 numbers cost less; false where they cannot be used.
  bool offer(const Line& l) {
    const AffineScale at{float_to_half(l.scale), float_to_half(l.minimum)};
    if (!usable(rounded(at))) return false;
    const float error = group_.error(rounded(at), range_);
    if (error < least_) {
      least_ = error;
      at_ = at;
    }
    return true;
  }
  bool exact() const { return least_ == 0; }
  AffineScale at() const { return at_; }

 private:
  const Group& group_;
  CodeRange range_;
  AffineScale at_;
  float least_;
};

}  // namespace

float affine_error(std::span<const float> w, std::span<const float> importance, AffineScale at, CodeRange range) {
  return Group(w, importance).error(rounded(at), range);
}

AffineScale search_affine(std::span<const float> w, std::span<const float> importance, AffineScale start,
                          CodeRange range) {
  const Line first = rounded(start);
  const auto [low, high] = std::ranges::minmax(w);
  if (!std::isfinite(first.scale) || !std::isfinite(first.minimum) || low == high) return start;
  const Group group(w, importance);
  Best best(group, range, start);
  // Fewer levels than there are codes: groups of one or three values and their like.
  for (int top = 1; top <= range.highest && !best.exact(); ++top)
    best.offer({(high - low) / static_cast<float>(top), low});
  if (best.exact()) return best.at();

  Group::Fit fit;
  for (const float a : kShrink)
    for (const float b : kShrink) {
      const float from = low < 0 ? low * a : low / a, to = high > 0 ? high * b : high / b;
      const Line line{(to - from) / static_cast<float>(range.highest), from};
      if (!usable(line)) continue;
      const Group::Fit tried = group.fit(line, range);
      if (tried.explained > fit.explained) fit = tried;
    }
  for (int pass = 0; pass < kRefinements && fit.explained > 0; ++pass) {
    if (!best.offer(fit.line)) break;
    fit = group.fit(fit.line, range);
  }
  return best.at();
}

}  // namespace onw
