// The forms of convolutions and of the gated delta rule that graphs of fixed rows take (passes/decompose_states.h)
// compute what the coarse ops do, whatever the blocks that rows come in.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <random>

#include "graph/text.h"
#include "graph/verifier.h"
#include "passes/decompose.h"
#include "passes/decompose_states.h"
#include "targets/reference/interpreter.h"
#include "targets/reference/kv_cache.h"
#include "targets/reference/recurrent_history.h"

namespace onw::reference {
namespace {

constexpr int64_t kRowsHere = 83;  // no multiple of a block or of a chunk
constexpr int64_t kHeads = 4, kKeyHeads = 2, kDim = 24, kValueDim = 20;

const std::string kProgram = "program p layers=1 hidden=8 vocabulary=9 max_context=8 embedding=e embedding_scale=1\n";

std::string delta_text(bool tiled) {
  return kProgram + fmt::format(
                        "state d delta layer=0 heads={0} head_dim={1} value_dim={2} key_heads={3}\nf {{\n"
                        "  %0 = input \"q\" : f32[S,{3},{1}]\n  %1 = input \"k\" : f32[S,{3},{1}]\n"
                        "  %2 = input \"v\" : f32[S,{0},{2}]\n  %3 = input \"g\" : f32[S,{0}]\n"
                        "  %4 = input \"beta\" : f32[S,{0}]\n"
                        "  %5 = gated_delta(%0, %1, %2, %3, %4; state=\"d\"{4}) \"y\" : f32[S,{0},{2}]\n"
                        "  return y=%5\n}}\n",
                        kHeads, kDim, kValueDim, kKeyHeads, tiled ? ", heads=\"tiled\"" : "");
}

Tensor normal(Shape shape, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw;
  Tensor t = make_tensor({DType::f32, std::move(shape), 0}, 0);
  for (float& x : t.f) x = draw(random);
  return t;
}

// Rows of `width` to this length.
void set_length(Tensor& t, int64_t width, float length) {
  for (size_t at = 0; at < t.f.size(); at += static_cast<size_t>(width)) {
    float sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += t.f[at + static_cast<size_t>(i)] * t.f[at + static_cast<size_t>(i)];
    for (int64_t i = 0; i < width; ++i) t.f[at + static_cast<size_t>(i)] *= length / std::sqrt(sum);
  }
}

// The logarithms of the decays, by head: none, slow, fast, and -80 among slow ones.
float log_decay(int64_t row, int64_t head) {
  if (head == 0) return 0;
  if (head == 1) return -1e-3f * static_cast<float>(1 + row % 7);
  if (head == 2) return -0.3f * static_cast<float>(1 + row % 5);
  return row % 3 == 0 ? -80.0f : -0.02f;
}

// Keys as models make them, of unit length; those of a run of rows are nearly alike, as real ones are.
Inputs delta_inputs() {
  Inputs in{{"q", normal({kRowsHere, kKeyHeads, kDim}, 1)},
            {"k", normal({kRowsHere, kKeyHeads, kDim}, 2)},
            {"v", normal({kRowsHere, kHeads, kValueDim}, 3)},
            {"g", make_tensor({DType::f32, {kRowsHere, kHeads}, 0}, 0)},
            {"beta", make_tensor({DType::f32, {kRowsHere, kHeads}, 0}, 0)}};
  Tensor& k = in["k"];
  for (size_t i = kKeyHeads * kDim; i < k.f.size(); ++i)
    if (i / (kKeyHeads * kDim) % 8 != 0) k.f[i] = 0.2f * k.f[i] + k.f[i - kKeyHeads * kDim];
  set_length(k, kDim, 1);
  set_length(in["q"], kDim, 1 / std::sqrt(static_cast<float>(kDim)));
  for (int64_t r = 0; r < kRowsHere; ++r)
    for (int64_t h = 0; h < kHeads; ++h) {
      in["g"].row(r)[static_cast<size_t>(h)] = log_decay(r, h);
      in["beta"].row(r)[static_cast<size_t>(h)] = 1 / (1 + std::exp(static_cast<float>((r * 5 + h) % 9) - 6));
    }
  return in;
}

// Some rows of each input, the last one again behind them.
Inputs rows_of(const Inputs& all, int64_t first, int64_t used, int64_t rows) {
  Inputs some;
  for (const auto& [name, t] : all) {
    Shape shape = t.type.shape;
    shape[0] = rows;
    Tensor part = make_tensor({DType::f32, shape, 0}, 0);
    for (int64_t r = 0; r < rows; ++r) std::ranges::copy(t.row(first + std::min(r, used - 1)), part.row(r).begin());
    some[name] = std::move(part);
  }
  if (rows > kRecurrentRows) {
    Tensor mask = make_tensor({DType::f32, {rows, 1}, 0}, 0);
    std::fill_n(mask.f.begin(), used, 1.0f);
    some["rows_used"] = std::move(mask);
  }
  return some;
}

float largest(std::span<const float> x) {
  float most = 0;
  for (const float v : x) most = std::max(most, std::fabs(v));
  return most;
}

void expect_near(std::span<const float> a, std::span<const float> b, float bound, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  const float most = largest(b);
  ASSERT_GT(most, 0) << what << ": a test on zeros says nothing";
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], bound * most) << what << " at " << i;
}

Result<Inputs> run_coarse(const Program& p, Inputs in, RecurrentHistory& history, const WeightSet& weights = {}) {
  std::vector<Row> rows;
  for (int64_t r = 0; r < kRowsHere; ++r) rows.push_back(text_row(0, r, 0, false));
  const Step step{.rows = rows};
  return run_function(p.functions[0], std::move(in),
                      {.program = p,
                       .weights = weights,
                       .step = &step,
                       .rows = kRowsHere,
                       .recurrent = [&](int, int) -> RecurrentHistory& { return history; }},
                      CancelToken(), false);
}

// The rows in blocks as the primitives take them: `take` of each are used, and the state after those is what goes on.
struct Blocks {
  int64_t rows = 1, take = 1;
};

struct Ran {
  std::vector<float> y, u, state;  // of all rows; after the last one
};

// The state behind the rows that were taken.
std::vector<float> state_behind(const Tensor& after, int64_t rows, int64_t taken) {
  const auto size = after.f.size() / static_cast<size_t>(after.type.shape[0]);
  const size_t at = rows <= kRecurrentRows ? static_cast<size_t>(taken - 1) * size : 0;
  return {after.f.begin() + static_cast<std::ptrdiff_t>(at), after.f.begin() + static_cast<std::ptrdiff_t>(at + size)};
}

Ran run_delta(const Program& p, const Inputs& all, Blocks blocks) {
  Ran ran;
  const auto f = decompose(p, p.functions[0], {.rows = blocks.rows});
  EXPECT_TRUE(f) << f.error().message;
  if (!f) return ran;
  const auto fine = verify(*f, p, Level::primitive);
  EXPECT_TRUE(fine) << fine.error().message;
  Tensor before = make_tensor({DType::f32, {kHeads, kDim, kValueDim}, 0}, 0);
  const WeightSet none;
  for (int64_t first = 0; first < kRowsHere; first += blocks.take) {
    const int64_t taken = std::min(blocks.take, kRowsHere - first);
    Inputs in = rows_of(all, first, taken, blocks.rows);
    in["d.before"] = before;
    const auto out =
        run_function(*f, std::move(in), {.program = p, .weights = none, .rows = blocks.rows}, CancelToken(), false);
    EXPECT_TRUE(out) << out.error().message;
    if (!out) return ran;
    for (int64_t r = 0; r < taken; ++r) {
      ran.y.insert(ran.y.end(), out->at("y").row(r).begin(), out->at("y").row(r).end());
      ran.u.insert(ran.u.end(), out->at("d.u").row(r).begin(), out->at("d.u").row(r).end());
    }
    before.f = ran.state = state_behind(out->at("d.after"), blocks.rows, taken);
  }
  return ran;
}

// The recurrence in double.
std::vector<float> judged(const Inputs& in, bool tiled) {
  std::vector<float> y;
  std::vector<double> s(kHeads * kDim * kValueDim);
  for (int64_t r = 0; r < kRowsHere; ++r)
    for (int64_t h = 0; h < kHeads; ++h) {
      const int64_t of = key_head_of(h, kHeads, kKeyHeads, tiled) * kDim;
      const float* k = in.at("k").row(r).data() + of;
      const float* q = in.at("q").row(r).data() + of;
      double* state = s.data() + h * kDim * kValueDim;
      const double decay = std::exp(static_cast<double>(in.at("g").row(r)[static_cast<size_t>(h)]));
      for (int64_t x = 0; x < kValueDim; ++x) {
        double m = 0, out = 0;
        for (int64_t i = 0; i < kDim; ++i) m += static_cast<double>(k[i]) * (state[i * kValueDim + x] *= decay);
        const double u = static_cast<double>(in.at("beta").row(r)[static_cast<size_t>(h)]) *
                         (static_cast<double>(in.at("v").row(r)[static_cast<size_t>(h * kValueDim + x)]) - m);
        for (int64_t i = 0; i < kDim; ++i)
          out += static_cast<double>(q[i]) * (state[i * kValueDim + x] += static_cast<double>(k[i]) * u);
        y.push_back(static_cast<float>(out));
      }
    }
  return y;
}

constexpr Blocks kBlocks[] = {{1, 1}, {2, 2}, {4, 4}, {4, 3}, {16, 16}, {16, 5}, {64, 64}, {64, 37}};

TEST(States, delta_rule_in_blocks_is_the_coarse_op) {
  for (const bool tiled : {false, true}) {
    const auto program = parse_program(delta_text(tiled));
    ASSERT_TRUE(program) << program.error().message;
    ASSERT_TRUE(verify(*program)) << verify(*program).error().message;
    const Inputs in = delta_inputs();
    RecurrentHistory history(program->states[0]);
    const auto coarse = run_coarse(*program, in, history);
    ASSERT_TRUE(coarse) << coarse.error().message;
    const std::vector<float> exact = judged(in, tiled);
    for (const Blocks blocks : kBlocks) {
      const std::string what = fmt::format("blocks of {} rows, {} used, tiled {}", blocks.rows, blocks.take, tiled);
      const Ran ran = run_delta(*program, in, blocks);
      expect_near(ran.y, coarse->at("y").f, 2e-5f, what);
      expect_near(ran.y, exact, 4e-6f, what + ", against double");
      std::vector<float> u;
      for (int64_t p = 0; p < kRowsHere; ++p) {
        const float* log = history.row(p) + delta_u_at(program->states[0]);
        u.insert(u.end(), log, log + kHeads * kValueDim);
      }
      expect_near(ran.u, u, 2e-5f, what + ", what the log keeps");
    }
  }
}

// What is exported after each row of a step is what a shorter step would have left.
TEST(States, every_row_of_a_short_block_leaves_its_state) {
  const auto program = parse_program(delta_text(false));
  ASSERT_TRUE(program);
  const Inputs in = delta_inputs();
  const Ran one = run_delta(*program, in, {1, 1});
  for (const int64_t take : {1, 2, 3, 4}) {
    const Ran ran = run_delta(*program, in, {4, take});
    EXPECT_EQ(ran.y, one.y) << take;
    EXPECT_EQ(ran.state, one.state) << take;
  }
}

TEST(States, convolutions_in_blocks_are_the_coarse_op) {
  for (const auto& [kernel, bias] : {std::pair(4, false), {3, true}, {1, true}}) {
    const auto program = parse_program(
        kProgram + fmt::format("weight w [6,{0}] f32 vector\nweight b [6] f32 vector\n"
                               "state c conv layer=0 heads=6 kernel={0}\nf {{\n  %0 = input \"x\" : f32[S,6]\n"
                               "  %1 = weight \"w\" : f32[6,{0}]\n  %2 = weight \"b\" : f32[6]\n"
                               "  %3 = conv_update(%0, %1{1}; state=\"c\") \"y\" : f32[S,6]\n  return y=%3\n}}\n",
                               kernel, bias ? ", %2" : ""));
    ASSERT_TRUE(program) << program.error().message;
    const std::vector<float> w = normal({6, kernel}, 5).f, b = normal({6}, 6).f;
    const WeightSet weights{[&](std::string_view name) -> Result<WeightView> {
                              WeightView view;
                              view.outputs = 6, view.inputs = name == "w" ? kernel : 1;
                              view.codes = std::as_bytes(std::span(name == "w" ? w : b));
                              return view;
                            },
                            {}};
    const Inputs in{{"x", normal({kRowsHere, 6}, 7)}};
    RecurrentHistory history(program->states[0]);
    const auto coarse = run_coarse(*program, in, history, weights);
    ASSERT_TRUE(coarse) << coarse.error().message;
    for (const Blocks blocks : kBlocks) {
      const auto f = decompose(*program, program->functions[0], {.rows = blocks.rows});
      ASSERT_TRUE(f) << f.error().message;
      EXPECT_TRUE(verify(*f, *program, Level::primitive)) << verify(*f, *program, Level::primitive).error().message;
      std::vector<float> y, before(static_cast<size_t>(6 * (kernel - 1)));
      for (int64_t first = 0; first < kRowsHere; first += blocks.take) {
        const int64_t taken = std::min(blocks.take, kRowsHere - first);
        Inputs some = rows_of(in, first, taken, blocks.rows);
        if (kernel > 1) some["c.before"] = Tensor{.type = {DType::f32, {kernel - 1, 6}, 0}, .f = before};
        const auto out = run_function(
            *f, std::move(some), {.program = *program, .weights = weights, .rows = blocks.rows}, CancelToken(), false);
        ASSERT_TRUE(out) << out.error().message;
        y.insert(y.end(), out->at("y").f.begin(), out->at("y").f.begin() + taken * 6);
        const std::vector<float>& rows = out->at("c.rows").f;
        before.assign(rows.begin() + taken * 6, rows.begin() + (taken + kernel - 1) * 6);
      }
      expect_near(y, coarse->at("y").f, 1e-6f, fmt::format("kernel {}, blocks of {}", kernel, blocks.rows));
    }
  }
}

}  // namespace
}  // namespace onw::reference
