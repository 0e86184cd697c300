// Attention over vectors; a file per instruction set makes a table of it for its struct of kernels/simd_*.h. The
// arithmetic is that of kernels/attention/scalar_block.h in every bit. Rows that see a block share its page in tiles of
// up to eight; registers hold a few rows by a few vectors of positions (scores) or of elements (sums).
#pragma once

#include "kernels/attention/tables.h"
#include "kernels/float_forms.h"
#include "kernels/scalar.h"

namespace onw::attention {

// Calls body.operator()<K>(i) for steps of K = most, then most / 2, ... 1 that together make from..to - 1.
template <int kMost, class Body>
inline void for_steps(int64_t from, int64_t to, Body body) {
  for (; from + kMost <= to; from += kMost) body.template operator()<kMost>(from);
  if constexpr (kMost > 1) for_steps<kMost / 2>(from, to, body);
}

// One page as its layout has it.
struct Page {
  const std::byte* at;
  KvLayout layout;
  // What follows K and V in the order of reading, while the first tile of rows passes: V of this page, K of the next.
  // Later tiles find all that in the cache: 0, or the page itself.
  int64_t k_ahead;
  const std::byte* v_ahead;

  const std::byte* v() const { return at + layout.v_offset(); }
  const uint16_t* scales() const { return reinterpret_cast<const uint16_t*>(at + layout.k_scale_offset()); }
};

// A row's part of one block: positions lo..hi - 1 of the page.
struct TileRow {
  int64_t row;
  int lo;
  int hi;
  float factor;  // INT8: what the sum of codes is multiplied with
};

// Instead of a unit that multiplies whole tiles of rows (attention_amx.cpp): none.
struct NoTiles {
  static constexpr int kRows = 0;
  static constexpr int kPositions = 32;  // the granularity of positions that sums() is given
  static bool takes(const AttentionForm&, int) { return false; }
  static void scores(const AttentionScratch&, const Page&, const TileRow*, int, int64_t, int64_t) {}
  static void sums(const AttentionScratch&, const Page&, const TileRow*, int, int64_t, int64_t) {}
};

template <class V, class Tiles = NoTiles>
struct Kernels {
  using F = typename V::F;
  using I = typename V::I;
  static constexpr int L = V::kLanes;
  static constexpr int kParts = 16 / L;
  static constexpr int64_t kP = kPagePositions;
  static constexpr int kTile = Tiles::kRows > 0 ? Tiles::kRows : 8;  // rows that share one pass over a page
  static_assert(kTile <= kTileRows);

  static float exp_one(float x) { return V::first_lane(forms::exp<V>(V::set(x))); }

  // ---- Scores

  // INT8 scores of R rows at T vectors of positions; kUnroll accumulators per sum, since one alone would wait on
  // itself.
  template <int R, int T, int kUnroll>
  static void scores_int8(const AttentionForm& form, const AttentionScratch& s, const Page& page, const TileRow* tile,
                          int64_t first_row, int64_t first_vector) {
    const int64_t padded = page.layout.padded();
    const std::byte* lines[T];
    for (int t = 0; t < T; t++) {
      const int64_t position = (first_vector + t) * L;
      lines[t] = page.at + position / 16 * padded * 16 + position % 16 * 4;
    }
    const int8_t* q[R];
    I sum[R][T][kUnroll];
    for (int r = 0; r < R; r++) {
      const int64_t row = tile[first_row + r].row;
      q[r] = s.codes + row * padded;
      for (int t = 0; t < T; t++)
        for (int u = 0; u < kUnroll; u++) sum[r][t][u] = u == 0 ? V::set_int(s.offset[row]) : V::izero();
    }
    for (int64_t i = 0; i < padded / 4; i += kUnroll)
      for (int u = 0; u < kUnroll; u++)
        for (int t = 0; t < T; t++) {
          const I k = V::load_bytes(lines[t] + (i + u) * 64);
          if (t % kParts == 0) V::prefetch(lines[t] + (i + u) * 64 + page.k_ahead);
          for (int r = 0; r < R; r++) sum[r][t][u] = V::dot(sum[r][t][u], k, V::quad(q[r] + (i + u) * 4));
        }
    for (int r = 0; r < R; r++)
      for (int t = 0; t < T; t++) {
        I total = sum[r][t][0];
        for (int u = 1; u < kUnroll; u++) total = V::add(total, sum[r][t][u]);
        const int64_t position = (first_vector + t) * L;
        const F scale = V::set(s.factor[tile[first_row + r].row]) * V::load(s.scales + position);
        store_score(form, s.scores + (first_row + r) * kP + position, V::to_float(total) * scale);
      }
  }

  // F16 scores: one accumulator per position, elements ascending.
  template <int R, int T>
  static void scores_f16(const AttentionTask& task, const AttentionScratch& s, const Page& page, const TileRow* tile,
                         int64_t first_row, int64_t first_vector) {
    const int64_t head_dim = task.form.head_dim;
    const uint16_t* lines[T];
    for (int t = 0; t < T; t++) {
      const int64_t position = (first_vector + t) * L;
      lines[t] = reinterpret_cast<const uint16_t*>(page.at) + position / 16 * head_dim * 16 + position % 16;
    }
    const float* q[R];
    F sum[R][T];
    for (int r = 0; r < R; r++) {
      q[r] = task.rows.data()[tile[first_row + r].row].q;
      for (int t = 0; t < T; t++) sum[r][t] = V::set(0.0f);
    }
    for (int64_t i = 0; i < head_dim; i++)
      for (int t = 0; t < T; t++) {
        const F k = V::load_half(lines[t] + i * 16);
        if (t % (2 * kParts) == 0) V::prefetch(lines[t] + i * 16 + page.k_ahead / 2);
        for (int r = 0; r < R; r++) sum[r][t] = V::fma(V::set(q[r][i]), k, sum[r][t]);
      }
    for (int r = 0; r < R; r++)
      for (int t = 0; t < T; t++)
        store_score(task.form, s.scores + (first_row + r) * kP + (first_vector + t) * L,
                    sum[r][t] * V::set(task.form.scale));
  }

  // Tiles::scores leaves sums of codes, without the row's offset, where the scores go.
  static void scale_sums(const AttentionForm& form, const AttentionScratch& s, const TileRow& row, int at) {
    const F factor = V::set(s.factor[row.row]);
    const I offset = V::set_int(s.offset[row.row]);
    float* score = s.scores + at * kP;
    for (int64_t i = row.lo / L * L; i < row.hi; i += L) {
      const F scale = factor * V::load(s.scales + i);
      store_score(form, score + i, V::to_float(V::add(V::load_bytes(score + i), offset)) * scale);
    }
  }

  static void store_score(const AttentionForm& form, float* to, F score) {
    V::store(to, form.soft_cap > 0 ? forms::soft_cap<V>(score, form.soft_cap) : score);
  }

  // Scores of all rows of the tile at the positions lo..hi - 1 (and at the rest of their vectors).
  static void scores(const AttentionTask& task, const AttentionScratch& s, const Page& page, const TileRow* tile,
                     int count, int lo, int hi) {
    const int64_t from = lo / L, to = (hi + L - 1) / L;
    if (Tiles::takes(task.form, count)) {
      Tiles::scores(s, page, tile, count, lo, hi);
      for (int r = 0; r < count; r++) scale_sums(task.form, s, tile[r], r);
      return;
    }
    for_steps<8>(0, count, [&]<int R>(int64_t row) {
      if (task.form.kv == KvFormat::int8) {
        for_steps<R == 8 && L == 8 ? 1 : 2>(from, to, [&]<int T>(int64_t vector) {
          scores_int8<R, T, (R >= 4 ? 1 : 4 / R)>(task.form, s, page, tile, row, vector);
        });
      } else {
        for_steps<8 / R>(from, to, [&]<int T>(int64_t vector) { scores_f16<R, T>(task, s, page, tile, row, vector); });
      }
    });
  }

  // ---- Softmax of one row over its part of the block

  // Calls body(i, keep) for the vectors at which the row looks; keep(x, otherwise) is x where it does.
  template <class Body>
  static void for_visible(const TileRow& row, Body body) {
    const int64_t all_from = (row.lo + L - 1) / L * L, all_to = row.hi / L * L;
    const auto edge = [&](int64_t i) {
      const auto seen = V::lanes(static_cast<int>(row.lo - i), static_cast<int>(row.hi - i));
      body(i, [seen](F x, F otherwise) { return V::select(seen, x, otherwise); });
    };
    if (row.lo < all_from) edge(all_from - L);
    for (int64_t i = all_from; i < all_to; i += L) body(i, [](F x, F) { return x; });
    if (all_from <= all_to && all_to < row.hi) edge(all_to);
  }

  // Scores to weights, in place; m and l of the block; for INT8 the weights' codes as bytes for the vectors that begin
  // in from..to - 1, zero where the row does not look.
  static void softmax(const AttentionForm& form, const AttentionScratch& s, TileRow& row, int at, int64_t from,
                      int64_t to) {
    float* score = s.scores + at * kP;
    const F nothing = V::set(-__builtin_inff()), zero = V::set(0.0f);
    F largest = nothing;
    for_visible(row, [&](int64_t i, auto keep) { largest = V::max(keep(V::load(score + i), nothing), largest); });
    const float m = V::reduce_max(largest);
    const F m_all = V::set(m);
    const float* v_scale = s.scales + kP;
    const bool coded = form.kv == KvFormat::int8;
    F partial[kParts];
    for (F& p : partial) p = zero;
    I magnitude = V::izero();
    for_visible(row, [&](int64_t i, auto keep) {
      const F p = keep(forms::exp_of_nonpositive<V>(V::load(score + i) - m_all), zero);
      F& sum = partial[kParts == 1 ? 0 : i / L % kParts];
      sum = sum + p;
      const F w = coded ? keep(p * V::load(v_scale + i), zero) : p;
      magnitude = V::max_magnitude(magnitude, w);
      V::store(score + i, w);
    });
    s.block_m[at] = m;
    s.block_l[at] = V::fold(partial);
    if (coded) weight_codes(s, row, at, V::reduce_max(magnitude), from, to);
  }

  // The weights of a row as 16-bit fixed point, low and high bytes apart.
  static void weight_codes(const AttentionScratch& s, TileRow& row, int at, float largest, int64_t from, int64_t to) {
    const bool usable = largest > 0 && largest < __builtin_inff();
    row.factor = usable ? largest / 65535.0f : largest;
    const F inv = V::set(usable ? 65535.0f / largest : 0.0f);
    const float* weight = s.scores + at * kP;
    uint8_t* low = s.bytes + at * 2 * kP;
    const auto store = [&](int64_t begin, int64_t end, auto value) {
      for (int64_t i = begin; i < end; i += 32) {
        I code[32 / L];
        for (int h = 0; h < 32 / L; h++) code[h] = value(i + h * L);
        V::store_low_high(low + i, low + kP + i, code);
      }
    };
    const auto none = [](int64_t) { return V::izero(); };
    const auto all = [&](int64_t i) { return V::round(V::load(weight + i) * inv); };
    const int64_t begin = row.lo / L * L, end = row.hi;
    const auto some = [&](int64_t i) { return begin <= i && i < end ? all(i) : V::izero(); };
    if (!usable) return store(from, to, none);
    const int64_t first = begin / 32 * 32, all_from = (begin + 31) / 32 * 32, all_to = end / 32 * 32;
    store(from, first, none);
    store(first, all_from, some);
    store(all_from, all_to, all);
    store(all_from > all_to ? all_from : all_to, end, some);
    store((end + 31) / 32 * 32, to, none);
  }

  // ---- Weighted sums of V

  // INT8: R rows, D vectors of elements, positions 4 from..4 to - 1.
  template <int R, int D>
  static void sums_int8(const AttentionScratch& s, const Page& page, const TileRow* tile, int64_t first_row,
                        int64_t vector, int64_t from, int64_t to) {
    const int64_t padded = page.layout.padded();
    I low[R][D], high[R][D];
    for (int r = 0; r < R; r++)
      for (int d = 0; d < D; d++) low[r][d] = high[r][d] = V::izero();
    const std::byte* v = page.v() + vector * L * 4;
    const std::byte* ahead = page.v_ahead + vector * L * 4;
    const uint8_t* weights = s.bytes + first_row * 2 * kP;
    for (int64_t i = from; i < to; i++) {
      I line[D];
      for (int d = 0; d < D; d++) {
        line[d] = V::load_bytes(v + i * padded * 4 + d * L * 4);
        if (d % kParts == 0) V::prefetch(ahead + i * padded * 4 + d * L * 4);
      }
      for (int r = 0; r < R; r++) {
        const I w_low = V::quad(weights + r * 2 * kP + i * 4), w_high = V::quad(weights + r * 2 * kP + kP + i * 4);
        for (int d = 0; d < D; d++) {
          low[r][d] = V::dot(low[r][d], w_low, line[d]);
          high[r][d] = V::dot(high[r][d], w_high, line[d]);
        }
      }
    }
    for (int r = 0; r < R; r++)
      for (int d = 0; d < D; d++)
        V::store(s.block_o + (first_row + r) * padded + (vector + d) * L,
                 V::to_float(V::add(low[r][d], V::times_256(high[r][d]))) * V::set(tile[first_row + r].factor));
  }

  // F16: goes on with block_o, positions from..to - 1 ascending.
  template <int R, int D>
  static void sums_f16(const AttentionScratch& s, const Page& page, int64_t first_row, int64_t vector, int64_t from,
                       int64_t to) {
    const int64_t padded = page.layout.padded();
    float* o = s.block_o + first_row * padded + vector * L;
    const float* weights = s.scores + first_row * kP;
    const uint16_t* v = reinterpret_cast<const uint16_t*>(page.v()) + vector * L;
    F sum[R][D];
    for (int r = 0; r < R; r++)
      for (int d = 0; d < D; d++) sum[r][d] = V::load(o + r * padded + d * L);
    for (int64_t j = from; j < to; j++) {
      F line[D];
      for (int d = 0; d < D; d++) line[d] = V::load_half(v + j * padded + d * L);
      for (int r = 0; r < R; r++) {
        const F w = V::set(weights[r * kP + j]);
        for (int d = 0; d < D; d++) sum[r][d] = V::fma(w, line[d], sum[r][d]);
      }
    }
    for (int r = 0; r < R; r++)
      for (int d = 0; d < D; d++) V::store(o + r * padded + d * L, sum[r][d]);
  }

  template <int R>
  static void sums_f16_all(const AttentionScratch& s, const Page& page, int64_t row, int64_t from, int64_t to) {
    if (from >= to) return;
    for_steps<8 / R>(0, page.layout.padded() / L,
                     [&]<int D>(int64_t vector) { sums_f16<R, D>(s, page, row, vector, from, to); });
  }

  static void sums(const AttentionForm& form, const AttentionScratch& s, const Page& page, const TileRow* tile,
                   int count, int64_t from, int64_t to) {
    const int64_t vectors = page.layout.padded() / L;
    if (Tiles::takes(form, count)) return Tiles::sums(s, page, tile, count, from, to);
    if (form.kv == KvFormat::int8) {
      for_steps<4>(0, count, [&]<int R>(int64_t row) {
        for_steps<(L == 8 ? 4 : 8) / R>(
            0, vectors, [&]<int D>(int64_t vector) { sums_int8<R, D>(s, page, tile, row, vector, from / 4, to / 4); });
      });
      return;
    }
    for (int64_t i = 0; i < count * page.layout.padded(); i += L) V::store(s.block_o + i, V::set(0.0f));
    for_steps<4>(0, count, [&]<int R>(int64_t row) {  // together where all look, each alone before and behind
      int64_t all_lo = 0, all_hi = kP;
      for (int r = 0; r < R; r++) {
        if (tile[row + r].lo > all_lo) all_lo = tile[row + r].lo;
        if (tile[row + r].hi < all_hi) all_hi = tile[row + r].hi;
      }
      if (all_lo > all_hi) all_lo = all_hi;
      for (int r = 0; r < R; r++) {
        const TileRow& one = tile[row + r];
        sums_f16_all<1>(s, page, row + r, one.lo, one.hi < all_lo ? one.hi : all_lo);
      }
      sums_f16_all<R>(s, page, row, all_lo, all_hi);
      for (int r = 0; r < R; r++) {
        const TileRow& one = tile[row + r];
        sums_f16_all<1>(s, page, row + r, one.lo > all_hi ? one.lo : all_hi, one.hi);
      }
    });
  }

  // ---- Rows and blocks

  static void prepare_query(const AttentionForm& form, const AttentionRow& row, int64_t r, const AttentionScratch& s) {
    const int64_t padded = form.layout().padded();
    s.m[r] = -__builtin_inff();
    s.l[r] = 0;
    for (int64_t i = 0; i < padded; i += L) V::store(s.o + r * padded + i, V::set(0.0f));
    if (form.kv != KvFormat::int8 || row.begin >= row.end) return;
    const float largest = amax(row.q, form.head_dim);
    const bool usable = largest >= 0x1p-100f && largest < __builtin_inff();
    const float inv = usable ? 127.0f / largest : 0.0f;
    const float scale = usable ? largest / 127.0f : largest < 0x1p-100f ? 0.0f : largest;
    s.factor[r] = scale * form.scale;
    s.offset[r] = -128 * codes(row.q, form.head_dim, usable, inv, s.codes + r * padded);
  }

  static float amax(const float* x, int64_t n) {
    I magnitude = V::izero();
    for (int64_t i = 0; i < n; i += L) magnitude = V::max_magnitude(magnitude, V::load(x + i, lanes(n - i)));
    return V::reduce_max(magnitude);
  }

  static int lanes(int64_t left) { return left < L ? static_cast<int>(left) : L; }

  // Codes of n numbers, zeros up to a multiple of 16; their sum.
  static int32_t codes(const float* x, int64_t n, bool usable, float inv, int8_t* to) {
    I sum = V::izero();
    for (int64_t i = 0; i < n; i += 16) {
      I code[kParts];
      for (int h = 0; h < kParts; h++) {
        const int64_t left = n - i - h * L;
        code[h] = usable && left > 0 ? V::round(V::load(x + i + h * L, lanes(left)) * V::set(inv)) : V::izero();
        sum = V::add(sum, code[h]);
      }
      V::store_codes(to + i, code);
    }
    return V::reduce_add(sum);
  }

  static void fold(const float* m, const float* l, const float* o, int64_t padded, int64_t r,
                   const AttentionScratch& s) {
    const float n = *m > s.m[r] ? *m : s.m[r];
    const float a = exp_one(s.m[r] - n), b = exp_one(*m - n);
    s.l[r] = __builtin_fmaf(*l, b, s.l[r] * a);
    float* running = s.o + r * padded;
    const F a_all = V::set(a), b_all = V::set(b);
    for (int64_t i = 0; i < padded; i += L)
      V::store(running + i, V::fma(V::load(o + i), b_all, V::load(running + i) * a_all));
    s.m[r] = n;
  }

  static void finish(const AttentionForm& form, const AttentionRow& row, int64_t r, const AttentionScratch& s) {
    float a = 1, l = s.l[r];
    if (row.sink != kNoSink) {
      const float n = row.sink > s.m[r] ? row.sink : s.m[r];
      a = exp_one(s.m[r] - n);
      l = __builtin_fmaf(1.0f, exp_one(row.sink - n), l * a);
    }
    const bool sees = row.begin < row.end;
    const float* o = s.o + r * form.layout().padded();
    for (int64_t i = 0; i < form.head_dim; i += L) {
      const F value = V::load(o + i) * V::set(a) / V::set(l);
      V::store(row.out + i, sees ? value : V::set(0.0f), lanes(form.head_dim - i));
    }
  }

  // The block b for all rows that see it, a tile at a time; use(tile, count) after each. `next` is the page that will
  // be read after this one, null if none.
  template <class Use>
  static void for_tiles(const AttentionTask& task, const AttentionScratch& s, int64_t b, const std::byte* next,
                        Use use) {
    const KvLayout layout = task.form.layout();
    Page page{task.pages[b], layout, layout.v_offset(), next == nullptr ? task.pages[b] : next};
    const AttentionRow* rows = task.rows.data();
    const int64_t total = static_cast<int64_t>(task.rows.size());
    TileRow tile[kTile];
    int count = 0;
    for (int64_t r = 0; r < total; r++) {
      const int64_t lo = rows[r].begin - b * kP, hi = rows[r].end - b * kP;
      if (hi > 0 && lo < kP && lo < hi)
        tile[count++] = {r, lo > 0 ? static_cast<int>(lo) : 0, hi < kP ? static_cast<int>(hi) : static_cast<int>(kP),
                         0};
      if (count == 0 || (count < kTile && r + 1 < total)) continue;
      int first = kP, last = 0;
      for (int i = 0; i < count; i++) {
        if (tile[i].lo < first) first = tile[i].lo;
        if (tile[i].hi > last) last = tile[i].hi;
      }
      constexpr int kStep = Tiles::kPositions;
      const int64_t from = first / kStep * kStep, to = (last + kStep - 1) / kStep * kStep;
      if (task.form.kv == KvFormat::int8)
        for (int64_t i = first / L * L; i < last; i += L)
          for (const int64_t part : {int64_t{0}, kP})
            V::store(s.scales + part + i, V::load_half(page.scales() + part + i));
      scores(task, s, page, tile, count, first, last);
      for (int i = 0; i < count; i++) softmax(task.form, s, tile[i], i, from, to);
      sums(task.form, s, page, tile, count, from, to);
      use(tile, count);
      count = 0;
      page.k_ahead = 0;
      page.v_ahead = page.at;
    }
  }

  static void attend(const AttentionTask& task, std::byte* scratch) {
    if (task.form.kv == KvFormat::f32) return attend_generic(task, scratch);
    const int64_t rows = static_cast<int64_t>(task.rows.size()), padded = task.form.layout().padded();
    const AttentionScratch s = place_attention_scratch(task.form, rows, scratch, nullptr);
    for (int64_t r = 0; r < rows; r++) prepare_query(task.form, task.rows.data()[r], r, s);
    const PageRange all = visible_blocks(task.rows);
    for (int64_t b = all.begin; b < all.end; b++)
      for_tiles(task, s, b, b + 1 < all.end ? task.pages[b + 1] : nullptr, [&](const TileRow* tile, int count) {
        for (int i = 0; i < count; i++)
          fold(s.block_m + i, s.block_l + i, s.block_o + i * padded, padded, tile[i].row, s);
      });
    for (int64_t r = 0; r < rows; r++) finish(task.form, task.rows.data()[r], r, s);
  }

  static void attend_blocks(const AttentionTask& task, PageRange all, PageRange range, float* results,
                            std::byte* scratch) {
    if (task.form.kv == KvFormat::f32) return attend_blocks_generic(task, all, range, results, scratch);
    const int64_t rows = static_cast<int64_t>(task.rows.size()), padded = task.form.layout().padded();
    const int64_t stride = result_stride(task.form.layout());
    const AttentionScratch s = place_attention_scratch(task.form, rows, scratch, nullptr);
    for (int64_t r = 0; r < rows; r++) prepare_query(task.form, task.rows.data()[r], r, s);
    for (int64_t b = range.begin; b < range.end; b++)
      for_tiles(task, s, b, b + 1 < range.end ? task.pages[b + 1] : nullptr, [&](const TileRow* tile, int count) {
        for (int i = 0; i < count; i++) {
          float* to = results + (tile[i].row * (all.end - all.begin) + b - all.begin) * stride;
          to[0] = s.block_m[i];
          to[1] = s.block_l[i];
          for (int64_t e = 0; e < padded; e += L) V::store(to + kResultHeader + e, V::load(s.block_o + i * padded + e));
        }
      });
  }

  static void fold_blocks(const AttentionTask& task, PageRange all, const float* results, std::byte* scratch) {
    if (task.form.kv == KvFormat::f32) return fold_blocks_generic(task, all, results, scratch);
    const int64_t rows = static_cast<int64_t>(task.rows.size()), padded = task.form.layout().padded();
    const int64_t stride = result_stride(task.form.layout());
    const AttentionScratch s = place_attention_scratch(task.form, rows, scratch, nullptr);
    for (int64_t r = 0; r < rows; r++) {
      const AttentionRow& row = task.rows.data()[r];
      s.m[r] = -__builtin_inff();
      s.l[r] = 0;
      for (int64_t i = 0; i < padded; i += L) V::store(s.o + r * padded + i, V::set(0.0f));
      for (int64_t b = row.begin / kP; row.begin < row.end && b * kP < row.end; b++) {
        const float* from = results + (r * (all.end - all.begin) + b - all.begin) * stride;
        fold(from, from + 1, from + kResultHeader, padded, r, s);
      }
      finish(task.form, row, r, s);
    }
  }

  // ---- Writing the cache

  static void kv_write(const KvLayout& layout, std::byte* page, int64_t position, const float* k, const float* v) {
    if (layout.format == KvFormat::f32) return kv_write_generic(layout, page, position, k, v);
    const int64_t n = layout.head_dim, padded = layout.padded();
    if (layout.format == KvFormat::f16) {
      auto* k_to = reinterpret_cast<uint16_t*>(page) + position / 16 * n * 16 + position % 16;
      auto* v_to = reinterpret_cast<uint16_t*>(page + layout.v_offset()) + position * padded;
      for (int64_t i = 0; i < n; i += L) {
        uint16_t halves[2][L];
        V::store_half(halves[0], V::load(k + i, lanes(n - i)));
        V::store_half(halves[1], V::load(v + i, lanes(n - i)));
        for (int e = 0; e < lanes(n - i); e++) k_to[(i + e) * 16] = halves[0][e], v_to[i + e] = halves[1][e];
      }
      return;
    }
    const scalar::KvScale k_scale = scalar::kv_scale(amax(k, n)), v_scale = scalar::kv_scale(amax(v, n));
    reinterpret_cast<uint16_t*>(page + layout.k_scale_offset())[position] = k_scale.half;
    reinterpret_cast<uint16_t*>(page + layout.v_scale_offset())[position] = v_scale.half;
    std::byte* k_to = page + position / 16 * padded * 16 + position % 16 * 4;
    auto* v_to = reinterpret_cast<int8_t*>(page + layout.v_offset()) + position / 4 * padded * 4 + position % 4;
    for (int64_t i = 0; i < n; i += 16) {
      const int64_t count = n - i < 16 ? n - i : 16;
      int8_t code[2][16];
      codes(k + i, count, k_scale.inv != 0, k_scale.inv, code[0]);
      codes(v + i, count, v_scale.inv != 0, v_scale.inv, code[1]);
      for (int64_t e = 0; e < count; e += 4) {
        uint32_t four;
        __builtin_memcpy(&four, code[0] + e, 4);
        four ^= 0x80808080u;
        __builtin_memcpy(k_to + (i + e) * 16, &four, 4);
      }
      for (int64_t e = 0; e < count; e++) v_to[(i + e) * 4] = code[1][e];
    }
  }

  static constexpr AttentionOps table() { return {kv_write, attend, attend_blocks, fold_blocks}; }
};

}  // namespace onw::attention
