// The scalar rule against the plain recurrence in double; every row of the table against the scalar functions, to the
// bit, each array ending at a guard page.
#include "kernels/delta/delta.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "base/cpu_features.h"
#include "base/guarded_memory.h"

namespace onw {
namespace {

// Floats that end at a guard page.
class Floats {
 public:
  explicit Floats(int64_t n) : memory_(std::make_unique<GuardedMemory>(static_cast<size_t>(n) * sizeof(float))) {
    std::ranges::fill(all(), 0.0f);
  }
  explicit Floats(std::span<const float> values) : Floats(static_cast<int64_t>(values.size())) {
    std::ranges::copy(values, data());
  }
  float* data() const { return reinterpret_cast<float*>(memory_->bytes().data()); }
  std::span<float> all() const { return {data(), memory_->bytes().size() / sizeof(float)}; }

 private:
  std::unique_ptr<GuardedMemory> memory_;
};

// The rows of one value head.
struct Rows {
  int64_t count, key_dim, value_dim;
  std::vector<float> q, k, v, g, beta;

  std::span<const float> of(const std::vector<float>& x, int64_t row, int64_t width) const {
    return std::span(x).subspan(static_cast<size_t>(row * width), static_cast<size_t>(width));
  }
};

// How decays are drawn, and what is adversarial about the rest.
enum class Kind { mild, none, every_size, far_and_near, all_far, parallel_keys };
constexpr Kind kKinds[] = {Kind::mild,         Kind::none,    Kind::every_size,
                           Kind::far_and_near, Kind::all_far, Kind::parallel_keys};

float log_decay(Kind kind, std::mt19937& random) {
  std::uniform_real_distribution<float> unit(0, 1);
  if (kind == Kind::none || kind == Kind::parallel_keys) return 0;
  if (kind == Kind::mild) return -unit(random);
  if (kind == Kind::every_size) return -std::exp(unit(random) * 18 - 13.6f);  // e^-1.2e-6 to e^-80
  if (kind == Kind::all_far) return -80;
  return random() % 3 == 0 ? -80.0f : -0.001f;
}

// Queries and keys of unit length, as the op gets them.
Rows rows_of(Kind kind, int64_t count, int64_t key_dim, int64_t value_dim, unsigned seed) {
  std::mt19937 random(seed + 100 * static_cast<unsigned>(kind));
  std::normal_distribution<float> normal(0, 1);
  std::uniform_real_distribution<float> unit(0, 1);
  Rows r{count, key_dim, value_dim, {}, {}, {}, {}, {}};
  std::vector<float> common(static_cast<size_t>(key_dim));
  for (float& x : common) x = normal(random);
  const auto unit_rows = [&](std::vector<float>& to) {
    for (int64_t t = 0; t < count; ++t) {
      std::vector<float> row(static_cast<size_t>(key_dim));
      for (size_t i = 0; i < row.size(); ++i)
        row[i] = kind == Kind::parallel_keys ? common[i] + 0.01f * normal(random) : normal(random);
      double length = 0;
      for (const float x : row) length += static_cast<double>(x) * x;
      for (float& x : row) x = static_cast<float>(x / std::sqrt(length));
      to.insert(to.end(), row.begin(), row.end());
    }
  };
  unit_rows(r.q);
  unit_rows(r.k);
  for (int64_t i = 0; i < count * value_dim; ++i) r.v.push_back(normal(random));
  for (int64_t t = 0; t < count; ++t) {
    r.g.push_back(log_decay(kind, random));
    r.beta.push_back(kind == Kind::none ? 1.0f : unit(random));
  }
  return r;
}

// One value head's state, and its rows in steps.
class Head {
 public:
  Head(const DeltaOps& ops, const Rows& rows)
      : ops_(ops),
        rows_(rows),
        edge_(rows.key_dim * rows.value_dim),
        next_(rows.key_dim * rows.value_dim),
        u_(kDeltaChunk * rows.value_dim),
        c_(kDeltaChunk * rows.value_dim) {}

  // The next `count` rows; their outputs are added to out().
  void step(int64_t count) {
    for (int64_t end = at_ + count; at_ < end;) {
      const int64_t base = at_ / kDeltaChunk * kDeltaChunk, stop = std::min(end, base + kDeltaChunk);
      DeltaChunk d{.key_dim = rows_.key_dim,
                   .value_dim = rows_.value_dim,
                   .first = static_cast<int>(at_ - base),
                   .last = static_cast<int>(stop - base),
                   .edge = edge_.data(),
                   .next_edge = in_place_ ? edge_.data() : next_.data(),
                   .u = u_.data(),
                   .c = c_.data(),
                   .log_stride = rows_.value_dim};
      run(d, base);
      at_ = stop;
      if (d.last == kDeltaChunk && !in_place_) std::swap(edge_, next_);
      if (d.last == kDeltaChunk) in_place_ = !in_place_;
    }
  }

  const std::vector<float>& out() const { return out_; }
  std::span<float> edge() const { return edge_.all(); }

 private:
  void run(DeltaChunk& d, int64_t base) {
    std::vector<Floats> kept;
    const auto copy = [&](const std::vector<float>& from, int64_t row, int64_t width) {
      return kept.emplace_back(rows_.of(from, row, width)).data();
    };
    for (int s = 0; s < d.last; ++s) {
      const int64_t row = base + s;
      d.k[s] = copy(rows_.k, row, rows_.key_dim);
      if (s < d.first) continue;
      d.q[s] = copy(rows_.q, row, rows_.key_dim);
      d.v[s] = copy(rows_.v, row, rows_.value_dim);
      d.out[s] = kept.emplace_back(rows_.value_dim).data();
      d.g[s] = rows_.g[static_cast<size_t>(row)];
      d.beta[s] = rows_.beta[static_cast<size_t>(row)];
    }
    ops_.chunk(d);
    for (int s = d.first; s < d.last; ++s) out_.insert(out_.end(), d.out[s], d.out[s] + rows_.value_dim);
  }

  const DeltaOps& ops_;
  const Rows& rows_;
  Floats edge_, next_, u_, c_;
  std::vector<float> out_;
  int64_t at_ = 0;
  bool in_place_ = false;
};

// S <- e^g S; S <- S + k (beta (v - S'k))'; out = S'q.
std::vector<double> recurrence(const Rows& r) {
  const auto dk = static_cast<size_t>(r.key_dim), dv = static_cast<size_t>(r.value_dim);
  std::vector<double> s(dk * dv), out;
  for (int64_t t = 0; t < r.count; ++t) {
    const auto q = r.of(r.q, t, r.key_dim), k = r.of(r.k, t, r.key_dim), v = r.of(r.v, t, r.value_dim);
    for (double& x : s) x *= std::exp(static_cast<double>(r.g[static_cast<size_t>(t)]));
    for (size_t x = 0; x < dv; ++x) {
      double m = 0, o = 0;
      for (size_t i = 0; i < dk; ++i) m += s[i * dv + x] * k[i];
      const double u = r.beta[static_cast<size_t>(t)] * (v[x] - m);
      for (size_t i = 0; i < dk; ++i) s[i * dv + x] += k[i] * u;
      for (size_t i = 0; i < dk; ++i) o += s[i * dv + x] * q[i];
      out.push_back(o);
    }
  }
  return out;
}

void expect_same_bits(std::span<const float> a, std::span<const float> b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_TRUE(std::bit_cast<uint32_t>(a[i]) == std::bit_cast<uint32_t>(b[i]) ||
                (std::isnan(a[i]) && std::isnan(b[i])))
        << what << ", element " << i << ": " << a[i] << " instead of " << b[i];
}

Isa best_isa() { return available_isas(cpu_features()).back(); }

const DeltaOps& generic() { return *delta_ops_table().front().ops; }

// Relative to the largest output. Mild decays: 4e-7; sums of e^-80 and e^-0.001 within a chunk leave their differences
// with an error of 6e-5 (an ulp of 16 x 80), which the bound allows for.
TEST(GatedDelta, is_the_recurrence_in_double_for_decays_from_e_to_the_minus_80_to_1) {
  for (const Kind kind : kKinds)
    for (const auto& [key_dim, value_dim] : {std::pair{8, 12}, {32, 16}, {128, 24}}) {
      const Rows rows = rows_of(kind, 130, key_dim, value_dim, 7);
      Head head(generic(), rows);
      head.step(rows.count);
      const std::vector<double> expected = recurrence(rows);
      double largest = 0, off = 0;
      for (size_t i = 0; i < expected.size(); ++i) {
        largest = std::max(largest, std::fabs(expected[i]));
        off = std::max(off, std::fabs(expected[i] - head.out()[i]));
      }
      const bool mixed = kind == Kind::far_and_near || kind == Kind::every_size;
      EXPECT_LE(off / largest, mixed ? 1e-4 : 2e-6) << static_cast<int>(kind) << ", " << key_dim;
    }
}

TEST(GatedDelta, takes_a_decay_to_nothing_as_that_and_never_gives_nan) {
  Rows rows = rows_of(Kind::mild, 40, 8, 12, 3);
  for (size_t t = 0; t < rows.g.size(); t += 3)
    rows.g[t] = t % 2 == 0 ? -std::numeric_limits<float>::infinity() : -1e9f;
  Head head(generic(), rows);
  head.step(rows.count);
  const std::vector<double> expected = recurrence(rows);
  for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(head.out()[i], expected[i], 1e-4) << i;
}

TEST(GatedDelta, gives_the_same_bits_however_rows_are_cut_into_steps) {
  const Rows rows = rows_of(Kind::every_size, 70, 24, 20, 5);
  for (const DeltaOpsRow& row : delta_ops_table()) {
    if (!runs_at(row.needs, best_isa())) continue;
    Head whole(*row.ops, rows);
    whole.step(rows.count);
    for (const std::vector<int64_t>& steps :
         {std::vector<int64_t>{1}, {7, 1, 5, 1, 1, 3, 11}, {16}, {15, 2}, {33, 1}}) {
      Head cut(*row.ops, rows);
      for (int64_t at = 0, i = 0; at < rows.count; ++i) {
        const int64_t n = std::min(steps[static_cast<size_t>(i) % steps.size()], rows.count - at);
        cut.step(n);
        at += n;
      }
      expect_same_bits(cut.out(), whole.out(), std::string(row.name));
      expect_same_bits(cut.edge(), whole.edge(), std::string(row.name) + ", the edge");
    }
  }
}

TEST(DeltaKernels, give_the_bits_of_the_scalar_functions_for_every_shape) {
  for (const DeltaOpsRow& row : delta_ops_table()) {
    if (!runs_at(row.needs, best_isa())) continue;
    for (const auto& [key_dim, value_dim] :
         {std::pair{1, 1}, {8, 12}, {13, 7}, {16, 16}, {24, 40}, {33, 130}, {128, 128}})
      for (const Kind kind : kKinds) {
        if (key_dim > 64 && kind != Kind::mild) continue;
        const Rows rows = rows_of(kind, 53, key_dim, value_dim, 11);
        Head expected(generic(), rows), ours(*row.ops, rows);
        for (const int64_t n : {1, 2, 3, 9, 4, 33, 1}) expected.step(n), ours.step(n);
        const std::string what =
            std::string(row.name) + ", " + std::to_string(key_dim) + " x " + std::to_string(value_dim);
        expect_same_bits(ours.out(), expected.out(), what);
        expect_same_bits(ours.edge(), expected.edge(), what + ", the edge");
      }
  }
}

TEST(DeltaKernels, convolve_as_the_scalar_function_does) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 1);
  for (const int64_t channels : {1, 7, 16, 37, 64})
    for (const int64_t kernel : {1, 3, 4}) {
      std::vector<Floats> rows;
      std::vector<const float*> x;
      for (int64_t j = 0; j < kernel; ++j) x.push_back(rows.emplace_back(channels).data());
      const Floats w(kernel * channels), bias(channels);
      for (const Floats* f : {&w, &bias})
        for (float& v : f->all()) v = normal(random);
      for (const Floats& f : rows)
        for (float& v : f.all()) v = normal(random);
      for (const bool biased : {false, true}) {
        const auto run = [&](const DeltaOps& ops) {
          Floats y(channels);
          const int64_t middle = channels / 3;
          for (const auto& [begin, end] : {std::pair{int64_t{0}, middle}, {middle, channels}})
            ops.conv({.x = x.data(),
                      .w = w.data(),
                      .bias = biased ? bias.data() : nullptr,
                      .kernel = kernel,
                      .channels = channels,
                      .begin = begin,
                      .end = end,
                      .y = y.data()});
          return y;
        };
        const Floats expected = run(generic());
        for (const DeltaOpsRow& row : delta_ops_table())
          if (runs_at(row.needs, best_isa()))
            expect_same_bits(run(*row.ops).all(), expected.all(), std::string(row.name));
      }
    }
}

}  // namespace
}  // namespace onw
