#include <algorithm>
#include <chrono>

#include "graph/ops.h"
#include "targets/cpu/sequence.h"
#include "targets/cpu/steps.h"
#include "targets/openvino/kv_side.h"
#include "targets/openvino/read_vector.h"

namespace onw::openvino {
namespace {

class PageSide final : public KvSide {
 public:
  PageSide(const Program& program, const KvSideOptions& options)
      : form_(std::make_shared<const cpu::SequenceForm>(cpu::SequenceForm{program, options.kv, options.max_context})),
        options_(options) {}

  Result<void> plan(const CutFunction& cut, const BufferPlan& buffers, const WeightSet& weights) {
    const cpu::PlanOptions plan{.max_rows = options_.max_rows,
                                .isa = options_.isa,
                                .threads = options_.threads,
                                .max_context = options_.max_context};
    for (const auto& between : cut.host) {
      steps_.emplace_back();
      for (const HostStep& step : between)
        if (is_of_cache(step)) RETURN_IF_ERROR(add(step, buffers, weights, plan));
    }
    return {};
  }

  std::unique_ptr<Sequence> new_sequence() override { return std::make_unique<cpu::CpuSequence>(form_); }
  Result<void> prepare(Sequence& s, int64_t rows) override { return cpu_sequence(s).prepare(rows); }
  void extend(Sequence& s, int64_t rows) override { cpu_sequence(s).extend(rows); }

  Result<void> begin(const Step& step, std::span<const Row> rows) override {
    spans_.clear();
    for (size_t r = 0; r < rows.size(); ++r) {
      if (r == 0 || rows[r - 1].sequence != rows[r].sequence) {
        cpu::CpuSequence& sequence = cpu_sequence(*step.sequences[static_cast<size_t>(rows[r].sequence)]);
        spans_.push_back({.first_row = static_cast<int64_t>(r),
                          .first_position = rows[r].index,
                          .states = &sequence.states(),
                          .recurrent = &sequence.recurrent()});
      }
      ++spans_.back().rows;
    }
    rows_ = static_cast<int64_t>(rows.size());
    return {};
  }

  Result<void> run(size_t segment, std::byte* arena) override {
    const cpu::RunContext c{.arena = arena,
                            .rows = rows_,
                            .spans = spans_,
                            .pool = options_.pool,
                            .isa = options_.isa,
                            .attention = &attention_ops(options_.isa)};
    for (const auto& step : steps_[segment]) {
      if (step.writes) {
        step.step->run(c);
        continue;
      }
      const auto start = Clock::now();
      step.step->run(c);
      attention_seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
    }
    return {};
  }

  std::span<const cpu::Span> spans() const override { return spans_; }
  double attention_seconds() const override { return attention_seconds_; }

  int64_t state_bytes(int64_t tokens) const override {
    int64_t bytes = 0;
    for (const StateDecl& s : form_->program.states)
      bytes += is_recurrent(s) ? cpu::recurrent_bytes(s)
                               : cpu::page_bytes(s, options_.kv) *
                                     cpu::pages_needed(s, tokens, cpu::kWindowSlack + options_.max_step_rows);
    return bytes;
  }

  bool truncates_freely() const override {
    return std::ranges::none_of(form_->program.states,
                                [](const StateDecl& s) { return s.window > 0 || is_recurrent(s); });
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct HostOp {
    cpu::StepPtr step;
    bool writes = false;  // K and V; else attends
  };

  static cpu::CpuSequence& cpu_sequence(Sequence& s) { return static_cast<cpu::CpuSequence&>(s); }

  Result<void> add(const HostStep& step, const BufferPlan& buffers, const WeightSet& weights,
                   const cpu::PlanOptions& plan) {
    const Node& n = step.node;
    const int state = form_->program.state(n.attributes.text("state"));
    CHECK(state >= 0);
    const StateDecl& decl = form_->program.states[static_cast<size_t>(state)];
    const int place = form_->program.place(state);
    const auto slot = [&](const std::string& name) { return buffers.slots.at(name); };
    if (n.op == Op::kv_write) {
      steps_.back().push_back({cpu::make_kv_write(n.label, {.k = slot(step.operands[0]),
                                                            .v = slot(step.operands[1]),
                                                            .state = place,
                                                            .heads = decl.heads,
                                                            .head_dim = decl.head_dim}),
                               true});
      return {};
    }
    if (n.attributes.integer("bidirectional") != 0 || decl.value_dim != decl.head_dim)
      return error(Code::unsupported, "{}: bidirectional attention, or values of a size of their own", n.label);
    cpu::AttentionStep attention{.q = slot(step.operands[0]),
                                 .y = slot(step.result),
                                 .state = place,
                                 .heads = n.type.shape[1],
                                 .kv_heads = decl.heads,
                                 .window = n.attributes.integer("window")};
    attention.form = {options_.kv, static_cast<int>(decl.head_dim), static_cast<float>(n.attributes.number("scale", 1)),
                      static_cast<float>(n.attributes.number("soft_cap"))};
    if (step.operands.size() > 1) {
      auto sinks = read_vector(weights, step.operands[1]);
      RETURN_IF_ERROR(sinks);
      sinks_.push_back(std::make_unique<const std::vector<float>>(std::move(*sinks)));
      attention.sinks = *sinks_.back();
    }
    steps_.back().push_back({cpu::make_attention(n.label, attention, plan, work_), false});
    return {};
  }

  std::shared_ptr<const cpu::SequenceForm> form_;
  KvSideOptions options_;
  std::vector<std::vector<HostOp>> steps_;
  std::vector<std::unique_ptr<const std::vector<float>>> sinks_;
  std::shared_ptr<cpu::AttentionWork> work_;
  std::vector<cpu::Span> spans_;
  int64_t rows_ = 0;
  double attention_seconds_ = 0;
};

}  // namespace

Result<std::unique_ptr<KvSide>> make_page_side(const Program& program, const CutFunction& cut,
                                               const BufferPlan& buffers, const WeightSet& weights,
                                               const KvSideOptions& options) {
  auto side = std::make_unique<PageSide>(program, options);
  RETURN_IF_ERROR(side->plan(cut, buffers, weights));
  return side;
}

}  // namespace onw::openvino
