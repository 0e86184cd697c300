// Every row of the table against the scalar functions, to the bit: random, adversarial and odd-sized data, each array
// ending at a guard page.
#include "kernels/rowops/rowops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "base/guarded_memory.h"

namespace onw {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Floats that end at a guard page.
class Guarded {
 public:
  explicit Guarded(size_t n) : memory_(std::make_unique<GuardedMemory>(n * sizeof(float))) {}
  explicit Guarded(const std::vector<float>& values) : Guarded(values.size()) {
    if (!values.empty()) std::memcpy(memory_->bytes().data(), values.data(), values.size() * sizeof(float));
  }
  float* data() const { return reinterpret_cast<float*>(memory_->bytes().data()); }
  std::vector<float> values() const { return {data(), data() + memory_->bytes().size() / sizeof(float)}; }

 private:
  std::unique_ptr<GuardedMemory> memory_;
};

// Equal bits, or both NaN.
bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

void expect_same(const std::vector<float>& ours, const std::vector<float>& exact, const std::string& what) {
  ASSERT_EQ(ours.size(), exact.size());
  for (size_t i = 0; i < ours.size(); i++)
    ASSERT_TRUE(same(ours[i], exact[i])) << what << ", element " << i << " of " << ours.size() << ": " << ours[i]
                                         << " instead of " << exact[i];
}

enum class Kind { normal, wide, bits, tiny, zeros, huge, edges };
constexpr Kind kKinds[] = {Kind::normal, Kind::wide, Kind::bits, Kind::tiny, Kind::zeros, Kind::huge, Kind::edges};

// Numbers of one kind: ordinary; of every magnitude; any bit pattern (NaN and infinity too); denormal; zeros of both
// signs; near overflow; where a form changes its branch.
std::vector<float> numbers(Kind kind, size_t n, unsigned seed) {
  std::mt19937 random(seed * 7 + static_cast<unsigned>(kind));
  std::normal_distribution<float> normal(0, 1);
  constexpr float kEdges[] = {0,          -0.0f,      0.625f,     1.25f,     14.5f,     -14.5f,    88.72283f,
                              88.72284f,  -87.33654f, -87.33655f, 0x1p-100f, 0x1p-101f, 0x1p-126f, kInfinity,
                              -kInfinity, 7,          -7,         44.5f,     0x1p-149f, -1e30f,    3.4028235e38f};
  std::vector<float> x(n);
  for (float& v : x) switch (kind) {
      case Kind::normal:
        v = 3 * normal(random);
        break;
      case Kind::wide:
        v = std::ldexp(normal(random), static_cast<int>(random() % 60) - 30);
        break;
      case Kind::bits:
        v = std::bit_cast<float>(static_cast<uint32_t>(random()));
        break;
      case Kind::tiny:
        v = std::bit_cast<float>(static_cast<uint32_t>(random() & 0x80ffffff));
        break;
      case Kind::zeros:
        v = random() % 2 == 0 ? 0.0f : -0.0f;
        break;
      case Kind::huge:
        v = std::ldexp(normal(random), 100 + static_cast<int>(random() % 28));
        break;
      case Kind::edges:
        v = kEdges[random() % std::size(kEdges)];
        break;
    }
  return x;
}

constexpr int64_t kSizes[] = {1, 2, 7, 8, 9, 15, 16, 17, 24, 31, 33, 48, 80, 101, 576, 1000};

std::span<const float> span(const std::vector<float>& x) { return x; }

class RowOpsTest : public ::testing::TestWithParam<RowOpsRow> {
 protected:
  void SetUp() override {
    const auto levels = available_isas(cpu_features());
    if (std::ranges::find(levels, GetParam().needs) == levels.end())
      GTEST_SKIP() << GetParam().name << ": this CPU lacks " << name(GetParam().needs);
  }
  const RowOps& ops() const { return *GetParam().ops; }

  // Calls test(numbers a, numbers b, name) for every kind and size.
  template <class Test>
  void for_all(Test test) {
    unsigned seed = 0;
    for (const Kind kind : kKinds)
      for (const int64_t n : kSizes) {
        seed++;
        test(numbers(kind, n, seed), numbers(kind, n, seed + 1000),
             "kind " + std::to_string(static_cast<int>(kind)) + ", n " + std::to_string(n));
        if (HasFatalFailure()) return;
      }
  }

  // What `run(in, out)` writes for a, both at guard pages; and in place.
  template <class Run>
  void expect_row(const std::vector<float>& a, const std::vector<float>& exact, const std::string& what, Run run) {
    const Guarded in(a), out(a.size());
    run(in.data(), static_cast<int64_t>(a.size()), out.data());
    expect_same(out.values(), exact, what);
    expect_same(in.values(), a, what + " (the input)");
    run(in.data(), static_cast<int64_t>(a.size()), in.data());
    expect_same(in.values(), exact, what + " in place");
  }
};

TEST_P(RowOpsTest, sums_equal_the_scalar_ones) {
  for_all([&](const auto& a, const auto& b, const std::string& what) {
    const Guarded x(a), y(b);
    EXPECT_TRUE(same(ops().sum(x.data(), a.size()), scalar::sum(a))) << what;
    EXPECT_TRUE(same(ops().dot(x.data(), y.data(), a.size()), scalar::dot(a, b))) << what;
  });
}

TEST_P(RowOpsTest, norms_equal_the_scalar_ones) {
  for_all([&](const auto& a, const auto& b, const std::string& what) {
    const Guarded weight(b), bias(a);
    std::vector<float> exact(a.size());
    for (const float* w : {static_cast<const float*>(weight.data()), static_cast<const float*>(nullptr)}) {
      scalar::rms_norm(a, w, 1e-5f, exact.data());
      expect_row(a, exact, "rms_norm, " + what,
                 [&](const float* x, int64_t n, float* out) { ops().rms_norm({w, nullptr, 1e-5f}, x, n, out); });
    }
    for (const float* added : {static_cast<const float*>(bias.data()), static_cast<const float*>(nullptr)}) {
      scalar::layer_norm(a, weight.data(), added, 1e-6f, exact.data());
      expect_row(a, exact, "layer_norm, " + what, [&](const float* x, int64_t n, float* out) {
        ops().layer_norm({weight.data(), added, 1e-6f}, x, n, out);
      });
    }
    scalar::l2_norm(a, 1e-6f, exact.data());
    expect_row(a, exact, "l2_norm, " + what,
               [&](const float* x, int64_t n, float* out) { ops().l2_norm(1e-6f, x, n, out); });
  });
}

TEST_P(RowOpsTest, rope_equals_the_scalar_one_and_leaves_the_rest_of_the_head) {
  for_all([&](const auto& a, const auto& b, const std::string& what) {
    const size_t half = a.size() / 2;
    const std::vector<float> cos(b.begin(), b.begin() + half), sin(b.end() - half, b.end());
    std::vector<float> exact = a;
    scalar::rope(exact.data(), cos, sin);
    const Guarded x(a), c(cos), s(sin);
    ops().rope(x.data(), c.data(), s.data(), half);
    expect_same(x.values(), exact, what);
  });
}

TEST_P(RowOpsTest, activations_equal_the_scalar_ones) {
  using scalar::Activation;
  for (const auto activation : {Activation::silu, Activation::gelu_tanh, Activation::gelu, Activation::sigmoid,
                                Activation::relu, Activation::softplus, Activation::swiglu_clamped})
    for_all([&](const auto& a, const auto& b, const std::string& what) {
      const std::string label = std::string(scalar::name(activation)) + ", " + what;
      const scalar::Gate kind{activation, 7, 1.702f};
      const Guarded up(b);
      std::vector<float> exact(a.size());
      for (size_t i = 0; i < a.size(); i++) exact[i] = scalar::gated(kind, a[i], b[i]);
      expect_row(a, exact, "gated " + label,
                 [&](const float* x, int64_t n, float* out) { ops().gated(kind, x, up.data(), n, out); });
      if (activation == Activation::swiglu_clamped) return;
      for (size_t i = 0; i < a.size(); i++) exact[i] = scalar::activate(activation, a[i]);
      expect_row(a, exact, label,
                 [&](const float* x, int64_t n, float* out) { ops().activate(activation, x, n, out); });
    });
}

TEST_P(RowOpsTest, plain_arithmetic_soft_cap_and_softmax_equal_the_scalar_ones) {
  for_all([&](const auto& a, const auto& b, const std::string& what) {
    const Guarded other(b);
    std::vector<float> sums(a.size()), products(a.size()), scaled(a.size()), capped(a.size()), shares(a.size());
    for (size_t i = 0; i < a.size(); i++) {
      sums[i] = a[i] + b[i];
      products[i] = a[i] * b[i];
      scaled[i] = a[i] * 0.3f;
      capped[i] = scalar::soft_cap(a[i], 30);
    }
    scalar::softmax(a, shares.data());
    using In = const float*;
    expect_row(a, sums, "add, " + what, [&](In x, int64_t n, float* out) { ops().add(x, other.data(), n, out); });
    expect_row(a, products, "multiply, " + what,
               [&](In x, int64_t n, float* out) { ops().multiply(x, other.data(), n, out); });
    expect_row(a, scaled, "scale, " + what, [&](In x, int64_t n, float* out) { ops().scale(0.3f, x, n, out); });
    expect_row(a, capped, "soft_cap, " + what, [&](In x, int64_t n, float* out) { ops().soft_cap(30, x, n, out); });
    expect_row(a, shares, "softmax, " + what, [&](In x, int64_t n, float* out) { ops().softmax(x, n, out); });
  });
}

TEST_P(RowOpsTest, sigmoid_equals_the_scalar_one_over_all_magnitudes) {
  // Seen through sigmoid, which hides nothing of e^-x but what 1 + e^-x rounds away.
  constexpr int64_t kBatch = 4096;
  std::vector<float> x(kBatch), y(kBatch);
  uint32_t bits = 0;
  for (int batch = 0; batch < 256; batch++) {
    for (float& v : x) v = std::bit_cast<float>(bits += 4093);
    ops().activate(scalar::Activation::sigmoid, x.data(), kBatch, y.data());
    for (int64_t i = 0; i < kBatch; i++) ASSERT_TRUE(same(y[i], scalar::sigmoid(x[i]))) << x[i];
  }
}

// The three parts of quantised rows in one comparable piece; padding rows are left out.
std::vector<float> flatten(const QuantizedRows& q) {
  std::vector<float> all;
  for (int64_t r = 0; r < q.rows; r++)
    for (int64_t k = 0; k < q.inputs; k++) {
      const int64_t slot = k / q.group * q.row_stride + r;
      all.push_back(q.codes[slot * q.group + k % q.group]);
      if (k % q.group == 0) all.push_back(q.scales[slot]);
      if (k % 32 == 0) all.push_back(static_cast<float>(q.sums[k / 32 * q.row_stride + r]));
    }
  return all;
}

struct Quantised {
  Quantised(int64_t rows, int64_t inputs, int group) : memory(quantized_rows_bytes(rows, inputs, group)) {
    std::memset(memory.bytes().data(), 0x55, memory.bytes().size());
    rows_ = place_quantized_rows(memory.bytes().data(), rows, inputs, group);
  }
  GuardedMemory memory;
  QuantizedRows rows_;
};

TEST_P(RowOpsTest, quantised_rows_equal_the_scalar_ones) {
  unsigned seed = 0;
  for (const int group : {32, 64, 128})
    for (const int64_t rows : {1, 3, 5})
      for (const Kind kind : kKinds) {
        const int64_t inputs = 5 * group;
        Quantised plain(rows, inputs, group), gate(rows, inputs, group), norm(rows, inputs, group);
        std::vector<float> exact[3];
        const auto weight = numbers(Kind::normal, inputs, 9);
        const Guarded w(weight);
        const scalar::Gate silu{scalar::Activation::silu};
        std::vector<std::vector<float>> a, b;
        for (int64_t r = 0; r < rows; r++) {
          a.push_back(numbers(kind, inputs, ++seed));
          b.push_back(numbers(Kind::normal, inputs, ++seed));
          const Guarded x(a[r]), up(b[r]);
          for (int64_t at = 0; at < inputs; at += 2 * group) {  // in parts, as threads share a row
            const int64_t end = std::min(at + 2 * group, inputs);
            ops().quantise(x.data() + at, {&plain.rows_, r, at, end});
            ops().gated_quantise(silu, x.data() + at, up.data() + at, {&gate.rows_, r, at, end});
          }
          ops().rms_norm_quantise({w.data(), nullptr, 1e-5f}, x.data(), norm.rows_, r);
        }
        for (int64_t r = 0; r < rows; r++) {
          std::vector<float> gated(inputs), normed(inputs);
          for (int64_t i = 0; i < inputs; i++) gated[i] = scalar::gated(silu, a[r][i], b[r][i]);
          scalar::rms_norm(a[r], weight.data(), 1e-5f, normed.data());
          const std::vector<float>* sources[3] = {&a[r], &gated, &normed};
          for (int s = 0; s < 3; s++)
            for (int64_t k = 0; k < inputs; k += group) {
              std::vector<int8_t> codes(group);
              const float scale = scalar::quantise(span(*sources[s]).subspan(k, group), codes.data());
              for (int i = 0; i < group; i++) {
                exact[s].push_back(codes[i]);
                if (i == 0) exact[s].push_back(scale);
                if (i % 32 == 0) {
                  int sum = 0;
                  for (int j = i; j < i + 32; j++) sum += codes[j];
                  exact[s].push_back(static_cast<float>(sum));
                }
              }
            }
        }
        const std::string what = "group " + std::to_string(group) + ", kind " + std::to_string(static_cast<int>(kind));
        expect_same(flatten(plain.rows_), exact[0], "quantise, " + what);
        expect_same(flatten(gate.rows_), exact[1], "gated_quantise, " + what);
        expect_same(flatten(norm.rows_), exact[2], "rms_norm_quantise, " + what);
        if (HasFatalFailure()) return;
      }
}

INSTANTIATE_TEST_SUITE_P(All, RowOpsTest, ::testing::ValuesIn(row_ops_table().begin(), row_ops_table().end()),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(RowOps, uses_the_best_row_that_a_level_runs) {
  EXPECT_EQ(&row_ops(Isa::generic), row_ops_table()[0].ops);
  EXPECT_EQ(&row_ops(Isa::avxvnni), &row_ops(Isa::avx2));
  EXPECT_EQ(&row_ops(Isa::amx), &row_ops(Isa::avx512vnni));
  EXPECT_NE(&row_ops(Isa::avx2), &row_ops(Isa::generic));
}

}  // namespace
}  // namespace onw
