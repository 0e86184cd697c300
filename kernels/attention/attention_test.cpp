// Every row of the table against the reference over plain arrays, to the bit: windows, sinks, soft caps, odd head
// sizes, one row or many, in one go or in pieces, with everything that was not written poisoned.
#include "kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "base/guarded_memory.h"
#include "base/half.h"
#include "base/threads.h"
#include "kernels/attention/reference.h"

namespace onw {
namespace {

enum class Data { ordinary, wide, equal, huge };

// One KV head with `length` positions in pages and, as the same numbers, in plain arrays.
class Cache {
 public:
  Cache(AttentionForm form, int64_t length, Data data, unsigned seed) : form_(form), random_(seed), data_(data) {
    for (int64_t p = 0; p < length; p++) append(attention_ops(Isa::generic).kv_write);
  }

  template <class Write>
  void append(Write kv_write) {
    const KvLayout layout = form_.layout();
    const int64_t slot = length_ % kPagePositions;
    if (slot == 0) {
      memory_.push_back(std::make_unique<GuardedMemory>(layout.bytes()));
      std::memset(memory_.back()->bytes().data(), 0xff, layout.bytes());  // NaN in F16 and F32
      pages_.push_back(memory_.back()->bytes().data());
    }
    std::byte* page = memory_.back()->bytes().data();
    const std::vector<float> k = numbers(), v = numbers();
    kv_write(layout, page, slot, k.data(), v.data());
    const int64_t at = length_ * form_.head_dim * layout.element_bytes();
    k_.resize(at + form_.head_dim * layout.element_bytes()), v_.resize(k_.size());
    k_scale_.resize(length_ + 1), v_scale_.resize(length_ + 1);
    load_position(layout, page, slot, k_.data() + at, &k_scale_[length_], v_.data() + at, &v_scale_[length_]);
    length_++;
  }

  std::vector<float> numbers() {
    std::normal_distribution<float> normal(0, 1);
    std::vector<float> x(form_.head_dim);
    const float size = data_ == Data::wide ? std::ldexp(1.0f, static_cast<int>(random_() % 38) - 25) : 1.0f;
    for (float& v : x) {
      v = size * normal(random_);
      if (data_ == Data::equal) v = 0.5f;
      if (data_ == Data::huge) v = std::copysign(2e4f, v);
    }
    return x;
  }

  // What the row gives by the definition.
  std::vector<float> reference(AttentionRow row) const {
    std::vector<float> out(form_.head_dim);
    row.out = out.data();
    scalar::attention(form_, row, {0, k_.data(), v_.data(), k_scale_.data(), v_scale_.data()});
    return out;
  }

  const std::byte* const* pages() const { return pages_.data(); }
  int64_t length() const { return length_; }

 private:
  AttentionForm form_;
  std::mt19937 random_;
  Data data_;
  int64_t length_ = 0;
  std::vector<std::unique_ptr<GuardedMemory>> memory_;
  std::vector<const std::byte*> pages_;
  std::vector<std::byte> k_, v_;
  std::vector<uint16_t> k_scale_, v_scale_;
};

// Queries and outputs of some rows, each at a guard page.
class Rows {
 public:
  Rows(Cache& cache, const AttentionForm& form, const std::vector<Visible>& visible, bool sinks) {
    for (size_t r = 0; r < visible.size(); r++) {
      for (auto* side : {&q_, &out_}) side->push_back(std::make_unique<GuardedMemory>(form.head_dim * sizeof(float)));
      std::ranges::copy(cache.numbers(), q_.back()->as<float>().begin());
      rows_.push_back({q_.back()->as<float>().data(), out_.back()->as<float>().data(), visible[r].begin, visible[r].end,
                       sinks ? static_cast<float>(r % 5) - 2 : kNoSink});
    }
    clear();
  }
  void clear() {
    for (auto& out : out_) std::memset(out->bytes().data(), 0xff, out->bytes().size());
  }
  std::span<const AttentionRow> rows() const { return rows_; }
  std::vector<float> out(size_t r) const {
    const auto values = out_[r]->as<float>();
    return {values.begin(), values.end()};
  }

 private:
  std::vector<std::unique_ptr<GuardedMemory>> q_, out_;
  std::vector<AttentionRow> rows_;
};

struct Scratch {
  Scratch(const AttentionForm& form, int64_t rows) : memory(attention_scratch_bytes(form, rows)) {
    std::memset(memory.bytes().data(), 0xff, memory.bytes().size());
  }
  std::byte* data() const { return memory.bytes().data(); }
  GuardedMemory memory;
};

void expect_same(const std::vector<float>& ours, const std::vector<float>& exact, const std::string& what) {
  for (size_t i = 0; i < exact.size(); i++) {
    ASSERT_FALSE(std::isnan(exact[i])) << what;
    ASSERT_EQ(std::bit_cast<uint32_t>(ours[i]), std::bit_cast<uint32_t>(exact[i]))
        << what << ", element " << i << ": " << ours[i] << " instead of " << exact[i];
  }
}

std::string label(const AttentionForm& form) {
  constexpr const char* kNames[] = {"int8", "f16", "f32"};
  return std::string(kNames[static_cast<int>(form.kv)]) + ", head " + std::to_string(form.head_dim) +
         (form.soft_cap > 0 ? ", capped" : "");
}

// F32 has the generic kernel alone, which the other tables hand on to: one form shows that.
std::vector<AttentionForm> forms(Isa isa) {
  std::vector<AttentionForm> all;
  for (const KvFormat kv : {KvFormat::int8, KvFormat::f16, KvFormat::f32})
    for (const int head_dim : {24, 8, 64, 80, 128, 256}) {
      if (kv == KvFormat::f32 && isa != Isa::generic && head_dim != 24) continue;
      all.push_back({kv, head_dim, 1 / std::sqrt(static_cast<float>(head_dim)), head_dim == 64 ? 5.0f : 0.0f});
    }
  all.push_back({KvFormat::int8, 5, 0.4f, 0});
  all.push_back({KvFormat::f16, 5, 0.4f, 0});
  all.push_back({KvFormat::int8, 512, 0.05f, 0});
  return all;
}

class AttentionTest : public ::testing::TestWithParam<AttentionOpsRow> {
 protected:
  void SetUp() override {
    const auto levels = available_isas(cpu_features());
    if (std::ranges::find(levels, GetParam().needs) == levels.end())
      GTEST_SKIP() << GetParam().name << ": this CPU lacks " << name(GetParam().needs);
  }
  const AttentionOps& ops() const { return *GetParam().ops; }

  void expect_task(Cache& cache, const AttentionForm& form, const std::vector<Visible>& visible, bool sinks) {
    Rows rows(cache, form, visible, sinks);
    const Scratch scratch(form, visible.size());
    ops().attend({form, rows.rows(), cache.pages()}, scratch.data());
    for (size_t r = 0; r < visible.size(); r++) {
      expect_same(rows.out(r), cache.reference(rows.rows()[r]),
                  label(form) + ", row " + std::to_string(r) + " of " + std::to_string(visible.size()) + " sees " +
                      std::to_string(visible[r].begin) + ".." + std::to_string(visible[r].end));
      if (HasFatalFailure()) return;
    }
  }
};

TEST_P(AttentionTest, equals_the_reference_for_one_row_of_any_length) {
  for (const AttentionForm& form : forms(GetParam().needs)) {
    Cache cache(form, 600, Data::ordinary, 1);
    for (const int64_t end : {1, 2, 15, 16, 17, 255, 256, 257, 511, 600})
      expect_task(cache, form, {{0, end}}, end % 2 == 0);
    if (HasFatalFailure()) return;
  }
}

TEST_P(AttentionTest, equals_the_reference_for_many_rows_with_windows_at_every_edge) {
  for (const AttentionForm& form : forms(GetParam().needs)) {
    Cache cache(form, 570, Data::ordinary, 2);
    std::vector<Visible> full, window, mixed;
    for (int64_t p = 240; p < 275; p++) full.push_back(causal(p, 0));
    for (int64_t p = 250; p < 290; p += 3) window.push_back(causal(p, 21));
    mixed = {{0, 570}, {3, 4}, {255, 257}, {256, 512}, {0, 0}, {511, 513}, {17, 300}, {560, 570}, {1, 1}, {100, 101}};
    for (const auto& visible : {full, window, mixed}) expect_task(cache, form, visible, true);
    if (HasFatalFailure()) return;
  }
}

TEST_P(AttentionTest, equals_the_reference_on_equal_huge_and_wildly_scaled_values) {
  for (const AttentionForm& form : forms(GetParam().needs))
    for (const Data data : {Data::wide, Data::equal, Data::huge}) {
      Cache cache(form, 300, data, 3);
      expect_task(cache, form, {{0, 300}, {0, 299}, {13, 270}}, false);
      if (HasFatalFailure()) return;
    }
}

TEST_P(AttentionTest, gives_the_same_bits_in_pieces_and_row_by_row) {
  for (const AttentionForm& form : forms(GetParam().needs)) {
    if (form.head_dim > 128) continue;
    Cache cache(form, 1300, Data::ordinary, 4);
    Rows rows(cache, form, {{0, 1300}, {0, 1}, {700, 1299}, {0, 0}, {512, 768}, {255, 1025}, {1299, 1300}}, true);
    const AttentionTask task{form, rows.rows(), cache.pages()};
    const int64_t n = static_cast<int64_t>(rows.rows().size());
    const Scratch scratch(form, n);
    ops().attend(task, scratch.data());
    std::vector<std::vector<float>> whole;
    for (int64_t r = 0; r < n; r++) whole.push_back(rows.out(r));

    const PageRange all = visible_blocks(task.rows);
    EXPECT_EQ(all.begin, 0);
    EXPECT_EQ(all.end, 6);
    for (const int64_t piece : {1, 2, 5}) {
      rows.clear();
      std::vector<float> results(block_results_floats(form, n, all.end - all.begin), NAN);
      for (int64_t b = ceil_div(all.end, piece) * piece - piece; b >= 0; b -= piece)
        ops().attend_blocks(task, all, {b, std::min(b + piece, all.end)}, results.data(), scratch.data());
      ops().fold_blocks(task, all, results.data(), scratch.data());
      for (int64_t r = 0; r < n; r++) expect_same(rows.out(r), whole[r], label(form) + " in pieces");
    }
    rows.clear();
    for (int64_t r = 0; r < n; r++) {
      ops().attend({form, rows.rows().subspan(r, 1), cache.pages()}, scratch.data());
      expect_same(rows.out(r), whole[r], label(form) + " row by row");
    }
    if (HasFatalFailure()) return;
  }
}

TEST_P(AttentionTest, gives_the_same_bits_on_any_number_of_threads) {
  const AttentionForm form{KvFormat::int8, 64, 0.125f, 0};
  Cache cache(form, 1100, Data::ordinary, 11);
  std::vector<Visible> visible;
  for (int64_t p = 1000; p < 1060; p++) visible.push_back(causal(p, p % 3 == 0 ? 300 : 0));
  Rows rows(cache, form, visible, false);
  const int64_t n = static_cast<int64_t>(visible.size());
  const AttentionTask task{form, rows.rows(), cache.pages()};
  const PageRange all = visible_blocks(task.rows);
  std::vector<std::vector<float>> first;
  for (const int threads : {1, 2, 3, 4}) {
    ThreadPool pool(threads);
    std::vector<std::unique_ptr<Scratch>> scratch;
    for (int t = 0; t < threads; t++) scratch.push_back(std::make_unique<Scratch>(form, n));
    const auto expect_first = [&](const char* how) {
      for (int64_t r = 0; r < n; r++) {
        if (threads == 1 && first.size() < static_cast<size_t>(n)) first.push_back(rows.out(r));
        expect_same(rows.out(r), first[r], std::to_string(threads) + " threads, " + how);
      }
      rows.clear();
    };
    pool.parallel_for(n, [&](int64_t begin, int64_t end, int thread) {
      ops().attend({form, task.rows.subspan(begin, end - begin), task.pages}, scratch[thread]->data());
    });
    expect_first("rows");
    std::vector<float> results(block_results_floats(form, n, all.end - all.begin));
    pool.parallel_for(all.end - all.begin, [&](int64_t begin, int64_t end, int thread) {
      ops().attend_blocks(task, all, {all.begin + begin, all.begin + end}, results.data(), scratch[thread]->data());
    });
    ops().fold_blocks(task, all, results.data(), scratch[0]->data());
    expect_first("positions");
    if (HasFatalFailure()) return;
  }
}

TEST_P(AttentionTest, gives_the_same_bits_token_by_token_as_in_one_step) {
  for (const AttentionForm& form : {AttentionForm{KvFormat::int8, 64, 0.125f, 0}, {KvFormat::f16, 64, 0.125f, 0}}) {
    Cache whole(form, 300, Data::ordinary, 5);
    std::vector<Visible> visible;
    for (int64_t p = 0; p < 300; p++) visible.push_back(causal(p, 0));
    Rows rows(whole, form, visible, false);
    const Scratch scratch(form, 300);
    ops().attend({form, rows.rows(), whole.pages()}, scratch.data());
    Cache growing(form, 0, Data::ordinary, 5);  // draws the same numbers, but each row sees only what exists by then
    for (int64_t p = 0; p < 300; p++) {
      growing.append(ops().kv_write);
      std::vector<float> out(form.head_dim);
      AttentionRow row = rows.rows()[p];
      row.out = out.data();
      ops().attend({form, {&row, 1}, growing.pages()}, scratch.data());
      expect_same(out, rows.out(p), label(form) + ", token " + std::to_string(p));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(AttentionTest, writes_the_cache_as_the_scalar_quantiser_does) {
  for (const AttentionForm& form : forms(GetParam().needs))
    for (const Data data : {Data::ordinary, Data::wide, Data::huge}) {
      const KvLayout layout = form.layout();
      Cache source(form, 0, data, 6);
      const GuardedMemory ours(layout.bytes()), exact(layout.bytes());
      const int64_t bytes = form.head_dim * layout.element_bytes();
      for (const int64_t position : {0, 1, 15, 16, 100, 255}) {
        const GuardedMemory k(form.head_dim * sizeof(float)), v(form.head_dim * sizeof(float));
        std::ranges::copy(source.numbers(), k.as<float>().begin());
        std::ranges::copy(source.numbers(), v.as<float>().begin());
        struct Stored {
          std::vector<std::byte> k, v;
          uint16_t k_scale = 0, v_scale = 0;
          bool operator==(const Stored&) const = default;
        };
        const auto stored = [&](const AttentionOps& by, std::byte* page) {
          by.kv_write(layout, page, position, k.as<float>().data(), v.as<float>().data());
          Stored s{std::vector<std::byte>(bytes), std::vector<std::byte>(bytes)};
          load_position(layout, page, position, s.k.data(), &s.k_scale, s.v.data(), &s.v_scale);
          return s;
        };
        ASSERT_EQ(stored(ops(), ours.bytes().data()), stored(attention_ops(Isa::generic), exact.bytes().data()))
            << label(form) << ", position " << position;
      }
    }
}

// numerics-060
TEST_P(AttentionTest, shows_what_is_not_finite_where_a_row_looks_and_nowhere_else) {
  for (const KvFormat kv : {KvFormat::int8, KvFormat::f16, KvFormat::f32})
    for (const float bad : {NAN, INFINITY})
      for (const bool in_k : {true, false}) {
        const AttentionForm form{kv, 32, 0.2f, 0};
        Cache cache(form, 100, Data::ordinary, 10);
        cache.append([&](const KvLayout& layout, std::byte* page, int64_t slot, const float* k, const float* v) {
          std::vector<float> spoilt(in_k ? k : v, (in_k ? k : v) + 32);
          spoilt[7] = bad;
          ops().kv_write(layout, page, slot, in_k ? spoilt.data() : k, in_k ? v : spoilt.data());
        });
        for (int i = 0; i < 100; i++) cache.append(ops().kv_write);
        Rows rows(cache, form, {{0, 100}, {0, 101}, {101, 201}, {99, 150}}, false);
        const Scratch scratch(form, 4);
        ops().attend({form, rows.rows(), cache.pages()}, scratch.data());
        const auto finite = [&](size_t r) {
          return std::ranges::all_of(rows.out(r), [](float x) { return std::isfinite(x); });
        };
        EXPECT_TRUE(finite(0) && finite(2)) << label(form) << ", " << bad << (in_k ? " in K" : " in V");
        // An infinity in K of the F16 and F32 forms may also win all the weight, or none: only NaN must show there.
        if (std::isnan(bad) || kv == KvFormat::int8 || !in_k)
          EXPECT_FALSE(finite(1) || finite(3)) << label(form) << ", " << bad << (in_k ? " in K" : " in V");
      }
}

INSTANTIATE_TEST_SUITE_P(All, AttentionTest,
                         ::testing::ValuesIn(attention_ops_table().begin(), attention_ops_table().end()),
                         [](const auto& row) { return std::string(row.param.name); });

// context-050
TEST(Causal, sees_itself_and_the_last_of_the_window) {
  for (const auto& [position, begin] : {std::pair{0, 0}, {3, 0}, {4, 1}, {5, 2}, {127, 124}}) {
    EXPECT_EQ(causal(position, 4).begin, begin) << position;
    EXPECT_EQ(causal(position, 4).end, position + 1);
    EXPECT_EQ(causal(position, 0).begin, 0);
  }
}

TEST(AttentionReference, equals_plain_softmax_in_double) {
  for (const float cap : {0.0f, 4.0f}) {
    const AttentionForm form{KvFormat::f32, 16, 0.3f, cap};
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0, 1);
    const int64_t n = 600;
    std::vector<float> k(n * 16), v(n * 16), q(16), out(16);
    for (auto* x : {&k, &v, &q})
      for (float& value : *x) value = normal(random);
    scalar::attention(form, {q.data(), out.data(), 37, 590, 1.5f}, {0, k.data(), v.data()});
    std::vector<double> exact(16);
    double total = std::exp(1.5);
    for (int64_t j = 37; j < 590; j++) {
      double s = 0;
      for (int i = 0; i < 16; i++) s += double{q[i]} * k[j * 16 + i];
      s *= 0.3f;
      if (cap > 0) s = cap * std::tanh(s / cap);
      total += std::exp(s);
      for (int i = 0; i < 16; i++) exact[i] += std::exp(s) * v[j * 16 + i];
    }
    for (int i = 0; i < 16; i++) EXPECT_NEAR(out[i], exact[i] / total, 1e-6);
  }
}

TEST(AttentionReference, with_codes_stays_near_the_unquantised) {
  const AttentionForm plain{KvFormat::f32, 64, 0.125f, 0}, coded{KvFormat::int8, 64, 0.125f, 0};
  Cache a(plain, 500, Data::ordinary, 8), b(coded, 500, Data::ordinary, 8);
  const auto q = a.numbers();
  const auto exact = a.reference({q.data(), nullptr, 0, 500});
  const auto ours = b.reference({q.data(), nullptr, 0, 500});
  for (int i = 0; i < 64; i++) EXPECT_NEAR(ours[i], exact[i], 0.01);
}

TEST(AttentionReference, of_a_row_that_sees_nothing_is_zero) {
  const AttentionForm form{KvFormat::f32, 2, 1, 0};
  const float q[2] = {1, 2};
  float out[2] = {7, 7};
  scalar::attention(form, {q, out, 5, 5, 1.0f}, {});
  EXPECT_EQ(out[0], 0);
  EXPECT_EQ(out[1], 0);
}

// Rows of diffuse attention: 2,000 equal scores. Weights of 8 bits would lose a third of the value's precision here.
TEST(AttentionReference, keeps_diffuse_attention) {
  const AttentionForm form{KvFormat::int8, 16, 1, 0};
  Cache cache(form, 2000, Data::equal, 9);
  const std::vector<float> q(16, 0.25f);
  for (const float o : cache.reference({q.data(), nullptr, 0, 2000})) EXPECT_NEAR(o, 0.5f, 2e-4);
}

TEST(KvPage, gives_back_what_was_stored) {
  for (const KvFormat format : {KvFormat::int8, KvFormat::f16, KvFormat::f32}) {
    const KvLayout layout{format, 24};
    const GuardedMemory page(layout.bytes());
    const int64_t n = 24 * layout.element_bytes();
    std::vector<std::byte> k(n), v(n), k_back(n), v_back(n);
    for (const int64_t position : {0, 37, 255}) {
      for (int64_t i = 0; i < n; i++) k[i] = std::byte(i * 5 + position), v[i] = std::byte(i * 7 + position + 1);
      store_position(layout, page.bytes().data(), position, k.data(), 0x3c00, v.data(), 0x4000);
      uint16_t k_scale = 0x3c00, v_scale = 0x4000;
      load_position(layout, page.bytes().data(), position, k_back.data(), &k_scale, v_back.data(), &v_scale);
      EXPECT_EQ(k, k_back);
      EXPECT_EQ(v, v_back);
      EXPECT_EQ(k_scale, 0x3c00);
      EXPECT_EQ(v_scale, 0x4000);
    }
  }
}

}  // namespace
}  // namespace onw
