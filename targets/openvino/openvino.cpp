#include "targets/openvino/openvino.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "base/page_cache.h"
#include "graph/ops.h"
#include "graph/verifier.h"
#include "targets/check_step.h"
#include "targets/openvino/compile.h"
#include "targets/openvino/expert_side.h"
#include "targets/openvino/fused_variants.h"
#include "targets/openvino/graph_inputs.h"
#include "targets/openvino/graph_states.h"
#include "targets/openvino/host_plans.h"
#include "targets/openvino/kv_side.h"
#include "targets/openvino/memory_model.h"
#include "targets/openvino/platforms.h"
#include "targets/rest.h"
#include "targets/timed_observer.h"

namespace onw {
namespace {

using namespace openvino;

// Rows that the head takes at once: more would only widen its buffers.
constexpr int64_t kHeadRows = 32;

// Rows that graphs of any number of rows take at once: each graph keeps room for the values of the most that it ever
// had (SmolLM2-135M: 1.1 MB a row for all its graphs, so 570 MB at 512 rows).
constexpr int64_t kDynamicRows = 128;

// Steps after which the device has packed every weight: it does so when a graph of any number of rows first runs.
constexpr int kPackingSteps = 3;

// The head as a cut function of its own, so that its buffers are planned like the body's.
CutFunction head_alone(const Program& program) { return {.segments = {*program.function("head")}, .host = {}}; }

// What computes, for people: "OpenVINO 2026.4, generation 4000, graphs of 1 and 64 rows".
std::string hardware_text(const OpenVinoOptions& o, const Platform& platform) {
  const auto [year, release] = release_of(o.runtime->version());
  std::string text = fmt::format("OpenVINO {}.{}", year, release);
  if (platform.openvino == "NPU") text += fmt::format(", generation {}", platform.name);
  if (!o.block_rows.empty()) text += fmt::format(", graphs of {} rows", fmt::join(o.block_rows, " and "));
  return text;
}

class OpenVino final : public Executable, public Rests {
 public:
  static Result<std::unique_ptr<Executable>> create(const Program& program, WeightSet weights,
                                                    const OpenVinoOptions& options) {
    auto target = std::make_unique<OpenVino>(options);
    RETURN_IF_ERROR(target->plan(program, weights));
    auto compiled = compile_blocks(program, target->cut_, weights, options, target->platform_->formats);
    RETURN_IF_ERROR(compiled);
    target->blocks_ = std::move(compiled->blocks);
    target->constants_ = std::move(compiled->constants);
    RETURN_IF_ERROR(target->wire());
    const WeightBytesByPlace bytes = bytes_by_place(program, weights);
    target->weight_bytes_ = bytes.graphs;
    target->expert_bytes_ = bytes.experts + target->host_->exact_bytes();
    if (target->experts_->copied_bytes() > 0)  // of the device's memory: the file's pages are given back
      for (const MappedWeights& file : weights.expert_files) drop_mapped_pages(file.bytes);
    target->packed_bytes_ = packed_weight_bytes(program, weights);
    target->inner_row_bytes_ = inner_row_bytes(target->cut_);
    auto inputs = GraphInputs::create(program, weights);
    RETURN_IF_ERROR(inputs);
    target->inputs_ = std::move(*inputs);
    target->weights_ = std::move(weights);
    if (const auto fused = target->plan_fused(program); !fused) target->without_fused(fused.error().message);
    return target;
  }

  explicit OpenVino(const OpenVinoOptions& options)
      : options_(options),
        platform_(find_platform(options.platform)),
        memory_(options.runtime, options.openvino_device),
        pool_(ThreadPlan{.threads = options.threads, .cpus = options.cpus}) {}

  const ExecutableInfo& info() const override { return info_; }
  bool mixes_prompt_and_decode() const override { return true; }
  Result<std::unique_ptr<Sequence>> new_sequence() override { return kv_->new_sequence(); }

  // The device packs every weight anew, block by block of rows; the mapping is given back.
  MemoryNeed need(int64_t tokens, int sequences) const override {
    const int64_t fused = fused_ != nullptr ? options_.fused.variants : 0;
    const auto blocks = static_cast<int64_t>(blocks_.size()) + fused;
    int64_t rows = fused * largest_;
    for (const Block& block : blocks_) rows += block.rows == kRows ? largest_ : block.rows;
    MemoryNeed n;
    n.weights_bytes = packed_bytes_ * blocks + expert_bytes_;
    n.state_bytes = kv_->state_bytes(tokens) * sequences;
    if (states_ != nullptr) n.state_bytes += states_->sequence_bytes() * sequences;
    n.work_bytes = (states_ != nullptr ? states_->work_bytes() : 0) + arena_bytes_ + host_->work_bytes() +
                   fused_places_.buffers.bytes + info_.vocabulary * 4 + rows * inner_row_bytes_ + kLibraryBytes +
                   kGraphBytes * blocks * static_cast<int64_t>(cut_.segments.size() + 1) +
                   platform_->work_bytes * blocks;
    return n;
  }

  Cost cost(const StepShape& s) const override {
    constexpr double kBytesPerSecond = 1.5e10, kOpsPerSecond = 7e11;
    const auto bytes = static_cast<double>(weight_bytes_ + host_->weight_bytes() + experts_->weight_bytes());
    const auto kv = static_cast<double>(kv_->state_bytes(s.depth));
    return {std::max((bytes + kv * s.sequences) / kBytesPerSecond, 4 * bytes * s.rows / kOpsPerSecond)};
  }

  void observe(OpObserver* observer) override { observer_ = observer; }
  void rest(bool resting) override {
    if (fused_ != nullptr) fused_->rest(resting);
  }
  Upkeep upkeep() const override { return fused_ != nullptr ? fused_->upkeep() : Upkeep(); }

  Result<Outputs> run(const Step& step, const CancelToken& cancel) override {
    RETURN_IF_ERROR(check_step(step, info_, true));
    RETURN_IF_ERROR(prepare(step));
    if (fused_ != nullptr) fused_->begin_step();
    auto ran = run_blocks(step, fused_ != nullptr, cancel);
    // What went wrong with attention inside the graphs may go well without.
    if (!ran && ran.error().code != Code::cancelled && fused_ != nullptr && fused_->give_up_chosen(ran.error().message))
      ran = run_blocks(step, false, cancel);
    RETURN_IF_ERROR(ran);
    if (steps_ < kPackingSteps) give_pages_back();
    for (size_t s = 0; s < step.sequences.size(); ++s)
      kv_->extend(*step.sequences[s], std::ranges::count(step.rows, static_cast<int>(s), &Row::sequence));
    return Outputs{logits_, hidden_};
  }

 private:
  Result<void> run_blocks(const Step& step, bool may_fuse, const CancelToken& cancel) {
    hidden_.clear();
    logits_.clear();
    for (int64_t first = 0; first < static_cast<int64_t>(step.rows.size());) {
      const auto left = together(step.rows.subspan(static_cast<size_t>(first)));
      Block& block = block_for(static_cast<int64_t>(left.size()));
      const auto rows = next_rows(left, block);
      FusedVariants::Variant* variant = may_fuse ? variant_for(rows, block) : nullptr;
      if (variant == nullptr)
        RETURN_IF_ERROR(run_rows(step, rows, block, cancel));
      else if (variant->proven)
        RETURN_IF_ERROR(run_fused(*variant, step, rows, block, cancel));
      else
        RETURN_IF_ERROR(run_both_ways(*variant, step, rows, block, cancel));
      first += static_cast<int64_t>(rows.size());
    }
    return check_logits();
  }

  // What cannot be a result: no number, or a row of exact zeros, which a device gives whose sums overflowed.
  Result<void> check_logits() const {
    const auto width = static_cast<size_t>(info_.vocabulary);
    for (size_t row = 0; row < logits_.size(); row += width) {
      const auto logits = std::span(logits_).subspan(row, width);
      if (!std::ranges::all_of(logits, [](float x) { return std::isfinite(x); }))
        return error(Code::numerics, "{} gives logits that are not finite", platform_->name);
      if (std::ranges::all_of(logits, [](float x) { return x == 0; }))
        return error(Code::numerics, "{} gives logits that are all zero", platform_->name);
    }
    return {};
  }

  // One copy of the weights stays: the device's. What the host looks up of the files is read again.
  void give_pages_back() {
    ++steps_;
    constants_->drop_file_pages();
    for (const MappedWeights& file : weights_.files) drop_mapped_pages(file.bytes);
  }

  // ---- once

  Result<void> plan(const Program& program, const WeightSet& weights) {
    const int64_t context =
        options_.max_context > 0 ? std::min(options_.max_context, program.max_context) : program.max_context;
    info_ = {.vocabulary = program.vocabulary,
             .hidden = program.hidden,
             .max_context = context,
             .max_step_rows = options_.max_step_rows,
             .max_partial_rows = options_.max_step_rows,
             .kv = options_.kv,
             .hardware = hardware_text(options_, *platform_)};
    // A static graph reads and writes whole blocks, however few rows there are.
    const bool dynamic = options_.block_rows.empty();
    const Function& function = *program.function("body");
    auto cut = dynamic ? cut_at_host_steps(function) : cut_for_fixed_rows(function);
    RETURN_IF_ERROR(cut);
    cut_ = std::move(*cut);
    largest_ = dynamic ? std::min<int64_t>(options_.max_step_rows, kDynamicRows) : options_.block_rows.back();
    head_rows_ = dynamic ? std::min(kHeadRows, largest_) : largest_;
    together_ = largest_;
    std::set<size_t> with_experts;
    if (options_.expert_requests > 0) {
      auto segments = segments_before_experts(program, cut_, weights);
      RETURN_IF_ERROR(segments);
      with_experts = std::move(*segments);
      if (!dynamic) together_ = rows_together(with_experts, options_.max_step_rows, largest_);
    }
    // Recurrent states take a step at once.
    if (std::ranges::any_of(program.states, is_recurrent)) {
      info_.max_step_rows = std::min(info_.max_step_rows, static_cast<int>(together_));
      info_.max_partial_rows = std::min(kDeltaChunk, info_.max_step_rows);
    }
    auto body = plan_buffers(cut_, together_);
    RETURN_IF_ERROR(body);
    auto head = plan_buffers(head_alone(program), head_rows_);
    RETURN_IF_ERROR(head);
    body_buffers_ = std::move(*body);
    head_buffers_ = std::move(*head);
    arena_bytes_ = body_buffers_.bytes + head_buffers_.bytes;
    auto arena = memory_.allocate(arena_bytes_);
    RETURN_IF_ERROR(arena);
    arena_ = std::move(*arena);
    auto host = HostPlans::create(program, cut_, body_buffers_, weights,
                                  {.isa = options_.isa,
                                   .threads = options_.threads,
                                   .max_rows = together_,
                                   .elsewhere = std::move(with_experts),
                                   .exact = options_.exact});
    RETURN_IF_ERROR(host);
    host_ = std::move(*host);
    const KvSideOptions side{.kv = options_.kv,
                             .isa = options_.isa,
                             .threads = options_.threads,
                             .pool = &pool_,
                             .max_rows = together_,
                             .max_context = context,
                             .max_step_rows = options_.max_step_rows};
    const auto compile = [this, properties = device_properties(options_, program)](const CompileJob& job,
                                                                                   const Constants& constants) {
      return compile_graph(job, constants, properties, options_);
    };
    auto experts = make_experts(program, weights, compile);
    RETURN_IF_ERROR(experts);
    experts_ = std::move(*experts);
    auto kv = options_.block_rows.empty() ? make_page_side(program, cut_, body_buffers_, weights, side)
                                          : make_chunk_side(program, cut_, body_buffers_, weights, side,
                                                            {.runtime = options_.runtime,
                                                             .compile = compile,
                                                             .formats = platform_->formats,
                                                             .block_rows = options_.block_rows,
                                                             .base = options_.chunk_positions,
                                                             .most_requests = std::max(options_.attention_requests, 1),
                                                             .memory = memory_});
    RETURN_IF_ERROR(kv);
    kv_ = std::move(*kv);
    info_.hardware += experts_text(program);
    if (!dynamic && std::ranges::any_of(program.states, is_recurrent)) {
      auto states = GraphStates::create(program, options_.block_rows, memory_, pool_);
      RETURN_IF_ERROR(states);
      states_ = std::move(*states);
    }
    info_.truncates_freely = kv_->truncates_freely();
    return {};
  }

  // For people: who computes experts, where it may be the device.
  std::string experts_text(const Program& program) const {
    const bool any = std::ranges::any_of(program.weights, [](const auto& w) { return w.role == WeightRole::expert; });
    if (!any || platform_->expert_requests == 0) return "";
    return experts_->layers() > 0 ? ", experts in graphs"
                                  : ", experts on the CPU (graphs take q4c in rows: onw convert SRC OUT --for npu)";
  }

  // None of any layer where the options leave them to the host.
  Result<std::unique_ptr<ExpertSide>> make_experts(const Program& program, const WeightSet& weights,
                                                   decltype(ExpertSideOptions::compile) compile) {
    const bool any = options_.expert_requests > 0;
    return ExpertSide::create(program, any ? cut_ : CutFunction(), body_buffers_, weights,
                              {.runtime = options_.runtime,
                               .compile = std::move(compile),
                               .formats = platform_->formats,
                               .memory = memory_,
                               .max_rows = together_,
                               .most_requests = std::max(options_.expert_requests, 2)});
  }

  // Requests are bound to their places, as many as the driver allows to stay; the head's first, which every step wants.
  Result<void> wire() {
    for (size_t b = 0; b < blocks_.size(); ++b) {
      Block& block = blocks_[b];
      int left = b < options_.resident_graphs.size() ? options_.resident_graphs[b] : std::numeric_limits<int>::max();
      const auto wire_one = [&](Graph& graph, const BufferPlan& buffers, std::byte* arena) -> Result<void> {
        if (left-- > 0) return block.rows == kRows ? Result<void>() : graph.wire(buffers, arena);
        graph.make_requests_as_needed();
        return {};
      };
      RETURN_IF_ERROR(wire_one(block.head.front(), head_buffers_, arena_.get() + body_buffers_.bytes));
      for (Graph& graph : block.body) RETURN_IF_ERROR(wire_one(graph, body_buffers_, arena_.get()));
    }
    return {};
  }

  // ---- every step

  using Clock = std::chrono::steady_clock;
  static double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

  void show(std::string_view label, std::string_view kind, double seconds) const {
    if (observer_ != nullptr) observer_->seen({.label = label, .kind = kind, .seconds = seconds});
  }

  Result<void> run_graph(Graph& graph, std::string_view label, int64_t rows, const BufferPlan& buffers,
                         std::byte* arena, int64_t first = 0) {
    const auto start = Clock::now();
    RETURN_IF_ERROR(graph.run(rows, buffers, arena, first));
    if (steps_ < kPackingSteps) constants_->drop_file_pages();  // what it has packed just now
    show(label, kGraphOp, since(start));
    return {};
  }

  // Convolutions, the delta rule and experts: ops of the model, each shown by itself.
  void run_host_plan(size_t segment, int64_t rows) {
    const auto start = Clock::now();
    Timed timed(observer_);
    host_->run(segment, {.arena = arena_.get(),
                         .rows = rows,
                         .spans = kv_->spans(),
                         .pool = &pool_,
                         .isa = options_.isa,
                         .row_ops = &row_ops(options_.isa),
                         .delta = &delta_ops(options_.isa),
                         .observer = observer_ == nullptr ? nullptr : &timed});
    show("states and experts, in and out", "host", since(start) - timed.seconds);
  }

  Result<void> run_experts(size_t segment, int64_t rows, const CancelToken& cancel) {
    const auto start = Clock::now();
    const double before = experts_->device_seconds();
    RETURN_IF_ERROR(experts_->run(segment, arena_.get(), rows, cancel));
    const double device = experts_->device_seconds() - before;
    show("experts", kGraphOp, device);
    show("rows to experts and back", "host", since(start) - device);
    return {};
  }

  // The device's part of it, and attention by the host's kernels, are shown apart.
  Result<void> run_host(size_t segment, int64_t rows, const CancelToken& cancel) {
    if (experts_->has(segment)) return run_experts(segment, rows, cancel);
    if (host_->has(segment)) {
      run_host_plan(segment, rows);
      return {};
    }
    const auto start = Clock::now();
    const double device_before = kv_->device_seconds(), attention_before = kv_->attention_seconds();
    RETURN_IF_ERROR(kv_->run(segment, arena_.get()));
    const double device = kv_->device_seconds() - device_before, mine = kv_->attention_seconds() - attention_before;
    if (device > 0) show("attention over chunks", kGraphOp, device);
    if (mine > 0) show("attention", name(Op::attention), mine);
    show("keys, values, merging", "host", since(start) - device - mine);
    return {};
  }

  Result<void> prepare(const Step& step) {
    for (size_t s = 0; s < step.sequences.size(); ++s)
      RETURN_IF_ERROR(
          kv_->prepare(*step.sequences[s], std::ranges::count(step.rows, static_cast<int>(s), &Row::sequence)));
    return {};
  }

  // A graph holds the states of one sequence.
  std::span<const Row> together(std::span<const Row> rows) const {
    const auto other = std::ranges::find_if(rows, [&](const Row& r) { return r.sequence != rows.front().sequence; });
    return states_ == nullptr ? rows : rows.first(static_cast<size_t>(other - rows.begin()));
  }

  std::span<const Row> next_rows(std::span<const Row> rows, const Block& block) const {
    const int64_t most = block.rows == kRows ? largest_ : block.rows == largest_ ? together_ : block.rows;
    return rows.first(std::min(static_cast<size_t>(most), rows.size()));
  }

  // The smallest block that holds the rows, else the largest.
  Block& block_for(int64_t rows) {
    const auto found = std::ranges::find_if(blocks_, [&](const Block& b) { return b.rows == kRows || b.rows >= rows; });
    return found == blocks_.end() ? blocks_.back() : *found;
  }

  Result<void> run_rows(const Step& step, std::span<const Row> rows, Block& block, const CancelToken& cancel) {
    const cpu::RunContext c{.arena = arena_.get(), .rows = static_cast<int64_t>(rows.size())};
    RETURN_IF_ERROR(kv_->begin(step, rows));
    inputs_.write(rows, body_buffers_, c, pool_);
    ChunkSequence* const recurrent = states_ != nullptr ? &sequence_of(step, rows) : nullptr;
    const int64_t all_rows = with_padding(c.rows);
    if (recurrent != nullptr) {
      inputs_.fill_up(body_buffers_, c, all_rows);
      RETURN_IF_ERROR(states_->begin(*recurrent, c.rows));
    }
    for (size_t s = 0; s < block.body.size(); ++s) {
      RETURN_IF_ERROR(run_segment(s, block, c.rows, recurrent, cancel));
      if (s < cut_.host.size()) RETURN_IF_ERROR(run_host(s, c.rows, cancel));
      if (recurrent != nullptr && s < cut_.host.size()) fill_up_results(s, c, all_rows);
    }
    return take_results(rows, body_buffers_.slots.at("hidden").f32(c), block, cancel);
  }

  // Of the blocks that so many rows take: what the last one has beyond them, too.
  int64_t with_padding(int64_t rows) {
    const int64_t whole = rows / largest_ * largest_;
    return rows == whole ? rows : whole + block_for(rows - whole).rows;
  }

  // Over more rows than a block has: block after block, the last one in the smallest that holds it. `recurrent`: whose
  // states go from block to block; may be null.
  Result<void> run_segment(size_t segment, Block& block, int64_t rows, ChunkSequence* recurrent,
                           const CancelToken& cancel) {
    for (int64_t first = 0; first < rows;) {
      if (cancel.cancelled()) return error(Code::cancelled, "cancelled");
      Block& next = first == 0 ? block : block_for(rows - first);
      Graph& graph = next.body[segment];
      const int64_t count = next.rows == kRows ? rows : std::min(next.rows, rows - first);
      if (recurrent != nullptr) RETURN_IF_ERROR(place_states(*recurrent, first, count, next.rows, graph));
      RETURN_IF_ERROR(run_graph(graph, "body", count, body_buffers_, arena_.get(), first));
      if (recurrent != nullptr) keep_states(*recurrent, graph);
      first += count;
    }
    return {};
  }

  // ---- States inside the graphs

  static ChunkSequence& sequence_of(const Step& step, std::span<const Row> rows) {
    return static_cast<ChunkSequence&>(*step.sequences[static_cast<size_t>(rows.front().sequence)]);
  }

  Result<void> place_states(ChunkSequence& sequence, int64_t first, int64_t rows, int64_t block_rows, Graph& graph) {
    const auto start = Clock::now();
    RETURN_IF_ERROR(states_->begin_block(sequence, first, rows, block_rows, graph));
    show("states in", "host", since(start));
    return {};
  }

  void keep_states(ChunkSequence& sequence, const Graph& graph) {
    const auto start = Clock::now();
    states_->finish_block(sequence, graph);
    show("states out", "host", since(start));
  }

  // What the host gives for the rows behind the last one must be numbers, too.
  void fill_up_results(size_t segment, const cpu::RunContext& c, int64_t all_rows) const {
    for (const HostStep& step : cut_.host[segment])
      if (step.crosses) fill_up_rows(body_buffers_, step.result, c, all_rows);
  }

  // The hidden rows that are wanted, and the logits of the head.
  Result<void> take_results(std::span<const Row> rows, const float* hidden, Block& block, const CancelToken& cancel) {
    for (size_t r = 0; r < rows.size(); ++r)
      if (rows[r].wants_hidden)
        hidden_.insert(hidden_.end(), hidden + static_cast<int64_t>(r) * info_.hidden,
                       hidden + static_cast<int64_t>(r + 1) * info_.hidden);
    return run_head(rows, hidden, block, cancel);
  }

  // ---- With attention inside the graphs

  // Where the host has to act for caches alone. Values of their own places: in one graph an input may not lie where an
  // output does.
  Result<void> plan_fused(const Program& program) {
    if (options_.fused.variants <= 0 || kv_->chunk_form() == nullptr || !can_fuse(cut_)) {
      without_fused("");
      return {};
    }
    const Function& body = *program.function("body");
    CutFunction pieces = cut_in_pieces(body, options_.fused.layers > 0 ? options_.fused.layers : program.layers);
    auto buffers = plan_buffers(pieces, largest_);
    RETURN_IF_ERROR(buffers);
    auto arena = memory_.allocate(buffers->bytes);
    RETURN_IF_ERROR(arena);
    fused_places_ = {.runtime = options_.runtime,
                     .cache = kv_->chunk_form(),
                     .memory = memory_,
                     .buffers = std::move(*buffers),
                     .arena = std::move(*arena)};
    fused_ = std::make_unique<FusedVariants>(FusedSetup{.program = program,
                                                        .weights = weights_,
                                                        .pieces = std::move(pieces),
                                                        .places = fused_places_,
                                                        .options = options_,
                                                        .properties = device_properties(options_, program),
                                                        .formats = platform_->formats,
                                                        .block_rows = options_.block_rows});
    return {};
  }

  void without_fused(const std::string& why) const {
    if (!options_.fused.on_news) return;
    if (!why.empty()) options_.fused.on_news({.what = FusedNews::What::failed, .why = why});
    options_.fused.on_news({.what = FusedNews::What::done});
  }

  // For rows of one sequence alone: a fused graph reads one cache.
  FusedVariants::Variant* variant_for(std::span<const Row> rows, const Block& block) {
    const bool alone = rows.front().sequence == rows.back().sequence;
    return alone ? fused_->choose(block.rows, rows.front().index) : nullptr;
  }

  Result<void> run_fused(FusedVariants::Variant& variant, const Step& step, std::span<const Row> rows, Block& block,
                         const CancelToken& cancel) {
    const cpu::RunContext c{.arena = fused_places_.arena.get(), .rows = static_cast<int64_t>(rows.size())};
    if (cancel.cancelled()) return error(Code::cancelled, "cancelled");
    inputs_.write(rows, fused_places_.buffers, c, pool_);
    inputs_.fill_up(fused_places_.buffers, c, variant.form.rows);
    auto& sequence = static_cast<ChunkSequence&>(*step.sequences[static_cast<size_t>(rows.front().sequence)]);
    const auto start = Clock::now();
    const double before = variant.graph->device_seconds();
    RETURN_IF_ERROR(variant.graph->run(sequence, rows.front().index, c.rows, cancel));
    const double device = variant.graph->device_seconds() - before;
    show("body with attention", kGraphOp, device);
    show("keys, values, masks", "host", since(start) - device);
    return take_results(rows, fused_places_.buffers.slots.at("hidden").f32(c), block, cancel);
  }

  // The first time: the answer is that of the segments, and says whether the variant computes the same. Rows without
  // logits are looked at by those of the last one.
  Result<void> run_both_ways(FusedVariants::Variant& variant, const Step& step, std::span<const Row> block_rows,
                             Block& block, const CancelToken& cancel) {
    std::vector<Row> rows(block_rows.begin(), block_rows.end());
    const bool shows = std::ranges::any_of(rows, &Row::wants_logits);
    rows.back().wants_logits = shows ? rows.back().wants_logits : true;
    const auto logits = static_cast<std::ptrdiff_t>(logits_.size()),
               hidden = static_cast<std::ptrdiff_t>(hidden_.size());
    const auto ran = run_fused(variant, step, rows, block, cancel);
    if (!ran && ran.error().code == Code::cancelled) return ran;
    const std::vector<float> fused(logits_.begin() + logits, logits_.end());
    logits_.erase(logits_.begin() + logits, logits_.end());
    hidden_.erase(hidden_.begin() + hidden, hidden_.end());
    RETURN_IF_ERROR(run_rows(step, rows, block, cancel));
    if (ran)
      fused_->judge(variant, fused, std::span(logits_).subspan(static_cast<size_t>(logits)), info_.vocabulary);
    else
      fused_->give_up(variant, ran.error().message);
    if (!shows) logits_.erase(logits_.begin() + logits, logits_.end());
    return {};
  }

  // The head over the rows that want logits, some at a time.
  Result<void> run_head(std::span<const Row> rows, const float* hidden, Block& block, const CancelToken& cancel) {
    std::byte* arena = arena_.get() + body_buffers_.bytes;
    const cpu::RunContext c{.arena = arena};
    float* in = head_buffers_.slots.at("hidden").f32(c);
    const float* out = head_buffers_.slots.at("logits").f32(c);
    const int64_t most = block.rows == kRows ? head_rows_ : block.rows;
    for (size_t r = 0; r < rows.size();) {
      int64_t count = 0;
      for (; r < rows.size() && count < most; ++r)
        if (rows[r].wants_logits)
          std::copy_n(hidden + static_cast<int64_t>(r) * info_.hidden, info_.hidden, in + count++ * info_.hidden);
      if (count == 0) break;
      if (cancel.cancelled()) return error(Code::cancelled, "cancelled");
      RETURN_IF_ERROR(run_graph(block.head.front(), "head", count, head_buffers_, arena));
      logits_.insert(logits_.end(), out, out + count * info_.vocabulary);
    }
    return {};
  }

  OpenVinoOptions options_;
  ExecutableInfo info_;
  WeightSet weights_;
  CutFunction cut_;
  BufferPlan body_buffers_, head_buffers_;
  // Rows of the largest graph, of all that go through a layer before the next one, of those through the head; bytes.
  int64_t largest_ = 0, together_ = 0, head_rows_ = 0, arena_bytes_ = 0;
  int64_t weight_bytes_ = 0, packed_bytes_ = 0, expert_bytes_ = 0, inner_row_bytes_ = 0;
  int steps_ = 0;  // until the weights are packed
  const Platform* platform_;
  HostMemory memory_;
  std::shared_ptr<std::byte> arena_;
  OpObserver* observer_ = nullptr;
  std::unique_ptr<Constants> constants_;  // the compiled graphs may still read the small ones
  std::vector<Block> blocks_;
  ThreadPool pool_;
  std::unique_ptr<KvSide> kv_;
  std::unique_ptr<HostPlans> host_;
  std::unique_ptr<ExpertSide> experts_;
  std::unique_ptr<GraphStates> states_;  // inside static graphs; none: the host's, or the model has none
  std::vector<float> logits_, hidden_;
  GraphInputs inputs_;
  FusedPlaces fused_places_;
  std::unique_ptr<FusedVariants> fused_;  // none: attention is between the graphs alone
};

}  // namespace

Result<std::unique_ptr<Executable>> make_openvino(const Program& program, WeightSet weights,
                                                  const OpenVinoOptions& options) {
  RETURN_IF_ERROR(verify(program));
  if (program.function("body") == nullptr || program.function("head") == nullptr)
    return error(Code::invalid_argument, "the program has no function 'body' or 'head'");
  for (const StateDecl& s : program.states)
    if (is_recurrent(s)) RETURN_IF_ERROR(check_recurrent(s));
  CHECK(options.runtime != nullptr && find_platform(options.platform) != nullptr);
  CHECK(std::ranges::is_sorted(options.block_rows));
  return OpenVino::create(program, std::move(weights), options);
}

}  // namespace onw
