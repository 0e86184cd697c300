#include "targets/cpu/cpu.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>

#include "base/checked.h"
#include "base/huge_memory.h"
#include "base/processor_time.h"
#include "graph/verifier.h"
#include "kernels/rope_row.h"
#include "passes/fuse.h"
#include "passes/merge_linears.h"
#include "passes/quantise.h"
#include "quant/unpack.h"
#include "targets/carried.h"
#include "targets/check_step.h"
#include "targets/cpu/huge_weights.h"
#include "targets/cpu/plan.h"
#include "targets/cpu/sequence.h"
#include "targets/cpu/tiled_weights.h"
#include "targets/rest.h"
#include "targets/row_tables.h"

namespace onw {
namespace {

using namespace cpu;
using Clock = std::chrono::steady_clock;

// Rows that the head takes at once: more would only widen its buffers.
constexpr int64_t kHeadRows = 32;

struct FreeAligned {
  void operator()(std::byte* p) const { std::free(p); }
};

struct Plans {
  Plan body, head;
  std::optional<Plan> short_head;
  int64_t arena_bytes() const {
    return body.arena_bytes() + std::max(head.arena_bytes(), short_head ? short_head->arena_bytes() : 0);
  }
};

Result<Plans> compile(const Program& fused, const WeightSet& weights, const CpuOptions& o, int64_t max_context) {
  PlanOptions options{.max_rows = o.max_step_rows, .isa = o.isa, .threads = o.threads, .max_context = max_context};
  const Function *body = fused.function("body"), *head = fused.function("head");
  if (body == nullptr || head == nullptr)
    return error(Code::invalid_argument, "the program has no function 'body' or 'head'");
  auto body_plan = Plan::compile(fused, *body, weights, options);
  RETURN_IF_ERROR(body_plan);
  options.max_rows = std::min<int64_t>(kHeadRows, o.max_step_rows);
  auto head_plan = Plan::compile(fused, *head, weights, options);
  RETURN_IF_ERROR(head_plan);
  Plans plans{std::move(*body_plan), std::move(*head_plan), {}};
  if (const Function* few = fused.function("short_head")) {
    auto few_plan = Plan::compile(fused, *few, weights, options);
    RETURN_IF_ERROR(few_plan);
    plans.short_head = std::move(*few_plan);
  }
  return plans;
}

constexpr size_t kHugePiece = 32 << 20;  // moved at once, where weights are moved to huge pages

class Cpu final : public Executable, public Rests {
 public:
  struct Tables {
    WeightView embedding;
    std::vector<RowTable> lookups;
  };

  Cpu(Program fused, WeightSet weights, const CpuOptions& options, Plans plans, Tables tables)
      : weights_(std::move(weights)),
        options_(options),
        plans_(std::move(plans)),
        tables_(std::move(tables)),
        shared_pool_(options.pool
                         ? options.pool
                         : std::make_shared<ThreadPool>(ThreadPlan{.threads = options.threads, .cpus = options.cpus})),
        pool_(*shared_pool_),
        thread_table_(options.threads, options.fast_threads, options.thread_choices),
        row_ops_(&row_ops(options.isa)),
        attention_(&attention_ops(options.isa)),
        delta_(&delta_ops(options.isa)),
        huge_weights_(parts_for_huge_pages(fused, weights_, kHugePiece), expert_parts(fused, weights_, kHugePiece)) {
    const int64_t context =
        options.max_context > 0 ? std::min(options.max_context, fused.max_context) : fused.max_context;
    const bool windows = std::ranges::any_of(fused.states, [](const StateDecl& s) { return s.window > 0; });
    const bool recurrent = std::ranges::any_of(fused.states, is_recurrent);
    info_ = {.vocabulary = fused.vocabulary,
             .hidden = fused.hidden,
             .carries = plans_.body.has_input("carried"),
             .short_vocabulary = short_vocabulary(fused),
             .max_context = context,
             .max_step_rows = options.max_step_rows,
             .max_partial_rows = recurrent ? std::min(kDeltaChunk, options.max_step_rows) : options.max_step_rows,
             .truncates_freely = !windows && !recurrent,
             .kv = options.kv,
             .hardware =
                 fmt::format("{}, {} thread{}", name(options.isa), options.threads, options.threads == 1 ? "" : "s")};
    for (const RopeTable& t : fused.rope_tables) inv_freq_.emplace_back(t.inv_freq.begin(), t.inv_freq.end());
    form_ = std::make_shared<const SequenceForm>(SequenceForm{std::move(fused), options.kv, context});
    spans_.reserve(static_cast<size_t>(options.max_step_rows));
  }

  Result<void> allocate() {
    const int64_t bytes = plans_.arena_bytes();
    const auto whole = static_cast<size_t>(round_up(bytes, static_cast<int64_t>(kHugePageBytes)));
    arena_.reset(static_cast<std::byte*>(std::aligned_alloc(kHugePageBytes, whole)));
    if (arena_ == nullptr)
      return error(Code::out_of_memory, "no memory for {} bytes of activations. Close other programs.", bytes);
    advise_huge_pages({arena_.get(), whole});
    logits_.reserve(static_cast<size_t>(info_.vocabulary));
    return {};
  }

  const ExecutableInfo& info() const override { return info_; }
  bool mixes_prompt_and_decode() const override { return true; }
  Result<std::unique_ptr<Sequence>> new_sequence() override { return std::make_unique<CpuSequence>(form_); }

  MemoryNeed need(int64_t tokens, int sequences) const override {
    MemoryNeed n;
    for (const WeightDecl& w : form_->program.weights) {
      if (!w.parts.empty()) continue;
      if (const auto view = weights_.find(w.name)) n.weights_bytes += view->stored_bytes();
    }
    for (const StateDecl& s : form_->program.states)
      n.state_bytes += is_recurrent(s) ? recurrent_bytes(s) * sequences
                                       : page_bytes(s, options_.kv) *
                                             pages_needed(s, tokens, kWindowSlack + info_.max_step_rows) * sequences;
    n.work_bytes = plans_.arena_bytes() + info_.vocabulary * 4;
    return n;
  }

  // From bytes and operations at rates of an ordinary laptop; ratios are what schedulers ask for.
  Cost cost(const StepShape& s) const override {
    constexpr double kBytesPerSecond = 3e10, kOpsPerSecond = 1e12;
    const auto body = static_cast<double>(plans_.body.weight_bytes()),
               head = static_cast<double>(plans_.head.weight_bytes());
    double kv = 0;
    for (const StateDecl& d : form_->program.states) {
      if (is_recurrent(d)) {
        kv += static_cast<double>(recurrent_form(d).edge_floats) * sizeof(float);
        continue;
      }
      const double seen = d.window > 0 ? std::min<double>(static_cast<double>(d.window), static_cast<double>(s.depth))
                                       : static_cast<double>(s.depth);
      kv += seen * static_cast<double>(page_bytes(d, options_.kv)) / kPagePositions;
    }
    const double bytes = body + (s.logits_rows > 0 ? head : 0) + kv * s.sequences;
    const double ops =
        4 * (body * s.rows + head * s.logits_rows);  // 4-bit weights: two a byte, a multiplication and an addition each
    return {std::max(bytes / kBytesPerSecond, ops / kOpsPerSecond)};
  }

  Result<Outputs> run(const Step& step, const CancelToken& cancel) override {
    RETURN_IF_ERROR(check_step(step, info_, true));
    RETURN_IF_ERROR(lay_out(step));
    const auto begin = Clock::now();
    const double processor = processor_seconds();
    const auto rows = static_cast<int64_t>(step.rows.size());
    const int threads = thread_table_.choose(rows);
    pool_.use(threads);
    RunContext c{.arena = arena_.get(),
                 .rows = rows,
                 .spans = spans_,
                 .pool = &pool_,
                 .isa = options_.isa,
                 .row_ops = row_ops_,
                 .attention = attention_,
                 .delta = delta_,
                 .observer = observer_};
    write_inputs(step, c);
    if (!plans_.body.run(c, cancel)) return error(Code::cancelled, "cancelled");
    gather_hidden(step, c);
    auto head = run_head(step, c, cancel);
    RETURN_IF_ERROR(head);
    if (!std::ranges::all_of(logits_, [](float x) { return std::isfinite(x); })) return not_finite(step, c);
    for (const Span& span : spans_) sequence_of(step, span).extend(span.rows);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    learn_threads(rows, seconds, processor_seconds() - processor);
    return Outputs{logits_, hidden_};
  }

  void observe(OpObserver* observer) override { observer_ = observer; }

  void rest(bool) override {}  // the thread below yields to steps by itself
  Upkeep upkeep() const override { return {.more_to_come = huge_weights_.moving()}; }

 private:
  void learn_threads(int64_t rows, double seconds, double processor_seconds) {
    if (huge_weights_.moving()) return thread_table_.disturbed(rows);
    const bool is_new = thread_table_.took(rows, seconds, processor_seconds);
    if (is_new && options_.on_thread_choices) options_.on_thread_choices(thread_table_.choices());
  }

  static CpuSequence& sequence_of(const Step& step, const Span& span) {
    const int i = step.rows[static_cast<size_t>(span.first_row)].sequence;
    return static_cast<CpuSequence&>(*step.sequences[static_cast<size_t>(i)]);
  }

  // One span a sequence, with pages for its rows.
  Result<void> lay_out(const Step& step) {
    spans_.clear();
    for (size_t r = 0; r < step.rows.size(); ++r) {
      const bool goes_on = r > 0 && step.rows[r - 1].sequence == step.rows[r].sequence;
      if (!goes_on) spans_.push_back({.first_row = static_cast<int64_t>(r), .first_position = step.rows[r].index});
      ++spans_.back().rows;
    }
    for (Span& span : spans_) {
      CpuSequence& s = sequence_of(step, span);
      RETURN_IF_ERROR(s.prepare(span.rows));
      span.states = &s.states();
      span.recurrent = &s.recurrent();
    }
    return {};
  }

  void write_inputs(const Step& step, const RunContext& c) {
    const Program& p = form_->program;
    const Slot& x = plans_.body.input("x");
    const Slot* carried = info_.carries ? &plans_.body.input("carried") : nullptr;
    const auto scale = static_cast<float>(p.embedding_scale);
    const auto write = [&](int64_t first, int64_t last, int) {
      for (int64_t r = first; r < last; ++r) {
        const Row& row = step.rows[static_cast<size_t>(r)];
        const std::span<float> to(x.f32(c) + r * x.stride, static_cast<size_t>(x.width));
        if (!row.embedding.empty()) {
          std::ranges::copy(row.embedding, to.begin());
        } else {
          dequantise_row(tables_.embedding, row.token, to);
          if (scale != 1) row_ops_->scale(scale, to.data(), x.width, to.data());
        }
        if (info_.carries) std::ranges::copy(row.carried, carried->f32(c) + r * carried->stride);
        for (const RowTable& table : tables_.lookups) {
          const Slot& in = plans_.body.input(table.input);
          table.read(row, {in.f32(c) + r * in.stride, static_cast<size_t>(in.width)});
        }
        for (size_t t = 0; t < inv_freq_.size(); ++t) {
          const RopeTable& table = p.rope_tables[t];
          const Slot &cos = plans_.body.input(table.name + ".cos"), &sin = plans_.body.input(table.name + ".sin");
          rope_row(static_cast<float>(row.rope[0]), inv_freq_[t], static_cast<float>(table.scaling),
                   cos.f32(c) + r * cos.stride, sin.f32(c) + r * sin.stride);
        }
      }
    };
    if (c.rows < 4)
      write(0, c.rows, 0);
    else
      pool_.parallel_for(c.rows, write);
  }

  void gather_hidden(const Step& step, const RunContext& c) {
    const Slot& h = plans_.body.output("hidden");
    hidden_.clear();
    for (int64_t r = 0; r < c.rows; ++r)
      if (step.rows[static_cast<size_t>(r)].wants_hidden)
        hidden_.insert(hidden_.end(), h.f32(c) + r * h.stride, h.f32(c) + r * h.stride + h.width);
  }

  // The head over the rows that want logits, some at a time; its arena lies behind the body's, whose output it reads.
  Result<void> run_head(const Step& step, const RunContext& body, const CancelToken& cancel) {
    const Slot& hidden = plans_.body.output("hidden");
    const int64_t most = std::min<int64_t>(kHeadRows, options_.max_step_rows);
    const Plan& head = step.short_head ? *plans_.short_head : plans_.head;
    const int64_t vocabulary = step.short_head ? info_.short_vocabulary : info_.vocabulary;
    logits_.resize(static_cast<size_t>(std::ranges::count(step.rows, true, &Row::wants_logits) * vocabulary));
    float* to = logits_.data();
    RunContext c = body;
    c.arena = body.arena + plans_.body.arena_bytes();
    c.spans = {};
    const Slot &in = head.input("hidden"), &out = head.output("logits");
    for (int64_t r = 0; r < body.rows;) {
      for (c.rows = 0; r < body.rows && c.rows < most; ++r)
        if (step.rows[static_cast<size_t>(r)].wants_logits)
          std::copy_n(hidden.f32(body) + r * hidden.stride, hidden.width, in.f32(c) + c.rows++ * in.stride);
      if (c.rows == 0) break;
      if (!head.run(c, cancel)) return error(Code::cancelled, "cancelled");
      for (int64_t i = 0; i < c.rows; ++i, to += vocabulary) std::copy_n(out.f32(c) + i * out.stride, vocabulary, to);
    }
    return {};
  }

  // The step once more, op by op, to name the first that is not finite.
  Failure not_finite(const Step& step, const RunContext& c) {
    write_inputs(step, c);
    std::string label = plans_.body.first_not_finite(c);
    if (label.empty()) label = "head";
    return error(Code::numerics, "{} gives a value that is not finite", label);
  }

  WeightSet weights_;
  CpuOptions options_;
  Plans plans_;
  Tables tables_;
  std::shared_ptr<ThreadPool> shared_pool_;
  ThreadPool& pool_;
  ThreadTable thread_table_;
  const RowOps* row_ops_;
  const AttentionOps* attention_;
  const DeltaOps* delta_;
  ExecutableInfo info_;
  std::shared_ptr<const SequenceForm> form_;
  std::vector<std::vector<float>> inv_freq_;
  std::vector<Span> spans_;
  std::unique_ptr<std::byte, FreeAligned> arena_;
  std::vector<float> logits_, hidden_;
  OpObserver* observer_ = nullptr;
  HugeWeights huge_weights_;  // the last: it ends before the weights do
};

}  // namespace

Program cpu_program(const Program& program, const WeightSet& weights, KvFormat kv) {
  const Program quantised = quantise_activations(program, name(kv));
  return fuse(merge_linears(quantised, [&](const auto& names) { return cpu::adjacent(weights, names); }));
}

Result<std::unique_ptr<Executable>> make_cpu(const Program& program, WeightSet weights, const CpuOptions& options) {
  RETURN_IF_ERROR(verify(program));
  for (const StateDecl& s : program.states)
    if (is_recurrent(s)) RETURN_IF_ERROR(check_recurrent(s));
  Program fused = cpu_program(program, weights, options.kv);
  const int64_t context =
      options.max_context > 0 ? std::min(options.max_context, program.max_context) : program.max_context;
  auto plans = compile(fused, weights, options, context);
  RETURN_IF_ERROR(plans);
  const auto embedding = weights.find(program.embedding);
  RETURN_IF_ERROR(embedding);
  auto lookups = row_tables(program, weights);
  RETURN_IF_ERROR(lookups);
  auto cpu = std::make_unique<Cpu>(std::move(fused), std::move(weights), options, std::move(*plans),
                                   Cpu::Tables{*embedding, std::move(*lookups)});
  RETURN_IF_ERROR(cpu->allocate());
  return cpu;
}

Result<std::string> print_cpu_plan(const Program& program, const WeightSet& weights, const CpuOptions& options) {
  const Program fused = cpu_program(program, weights, options.kv);
  const auto plans =
      compile(fused, weights, options, options.max_context > 0 ? options.max_context : program.max_context);
  RETURN_IF_ERROR(plans);
  return plans->body.print() + plans->head.print();
}

}  // namespace onw
