#include "targets/reference/reference.h"

#include <algorithm>
#include <cmath>

#include "graph/ops.h"
#include "graph/verifier.h"
#include "targets/canonical_state.h"
#include "targets/carried.h"
#include "targets/check_step.h"
#include "targets/reference/body_inputs.h"
#include "targets/reference/interpreter.h"
#include "targets/reference/kv_cache.h"
#include "targets/reference/recurrent_history.h"

namespace onw {
namespace {

using namespace reference;

struct Model {
  Program program;
  WeightSet weights;
  ReferenceOptions options;
  ExecutableInfo info;
};

// What a sequence carries.
struct Caches {
  std::vector<KvCache> kv;
  std::vector<RecurrentHistory> recurrent;
};

class ReferenceCheckpoint final : public Checkpoint {
 public:
  ReferenceCheckpoint(Caches caches, int64_t length, int64_t bytes)
      : caches(std::move(caches)), length_(length), bytes_(bytes) {}
  int64_t length() const override { return length_; }
  int64_t bytes() const override { return bytes_; }
  const Caches caches;

 private:
  int64_t length_, bytes_;
};

int64_t bytes_per_position(const Caches& caches) {
  int64_t n = 0;
  for (const KvCache& c : caches.kv) n += c.bytes_per_position();
  return n;
}

int64_t recurrent_bytes(const Caches& caches) {
  int64_t n = 0;
  for (const RecurrentHistory& r : caches.recurrent) n += r.bytes();
  return n;
}

class ReferenceSequence final : public Sequence {
 public:
  ReferenceSequence(std::shared_ptr<const Model> model, Caches caches, int64_t length)
      : model_(std::move(model)), caches_(std::move(caches)), length_(length) {}

  int64_t length() const override { return length_; }

  Result<void> reserve(int64_t tokens) override {
    if (tokens > model_->info.max_context)
      return error(Code::context_overflow, "{} tokens do not fit the context of {}", tokens, model_->info.max_context);
    return {};
  }

  void commit(int rows_kept) override {
    CHECK(rows_kept >= 0 && rows_kept <= last_step_rows_);
    cut(length_ - last_step_rows_ + rows_kept);
  }

  int64_t truncate(int64_t n) override {
    CHECK(n >= 0);
    n = std::min(n, length_);
    cut(n >= oldest() ? n : 0);
    return length_;
  }

  Result<CheckpointPtr> checkpoint() override {
    return std::make_shared<ReferenceCheckpoint>(caches_, length_,
                                                 bytes_per_position(caches_) * length_ + recurrent_bytes(caches_));
  }

  Result<void> restore(const Checkpoint& checkpoint) override {
    const auto* mine = dynamic_cast<const ReferenceCheckpoint*>(&checkpoint);
    if (mine == nullptr || mine->caches.kv.size() != caches_.kv.size())
      return error(Code::invalid_argument, "the checkpoint belongs to another target");
    caches_ = mine->caches;
    cut(mine->length());
    return {};
  }

  Result<std::unique_ptr<Sequence>> fork(int64_t n) override {
    if (n < 0 || n > length_)
      return error(Code::invalid_argument, "cannot fork at {}: the sequence has {} tokens", n, length_);
    if (n > 0 && n < oldest())
      return error(Code::invalid_argument,
                   "cannot fork at {}: a recurrent state has moved on; the lengths from {} on can be restored", n,
                   oldest());
    auto copy = std::make_unique<ReferenceSequence>(model_, caches_, length_);
    copy->cut(n);
    return copy;
  }

  Result<void> export_to(StateSink& sink) const override {
    for (const KvCache& cache : caches_.kv) RETURN_IF_ERROR(export_cache(const_cast<KvCache&>(cache), sink));
    for (const RecurrentHistory& r : caches_.recurrent) RETURN_IF_ERROR(r.export_to(sink));
    return {};
  }

  Result<void> import_from(StateSource& source) override {
    if (source.kv_format() != model_->info.kv)
      return error(Code::unsupported, "the saved state has another key-value format than this reference");
    if (source.length() > model_->info.max_context)
      return error(Code::context_overflow, "the saved state has {} tokens, the context {}", source.length(),
                   model_->info.max_context);
    Caches fresh = caches_;
    for (RecurrentHistory& r : fresh.recurrent) RETURN_IF_ERROR(r.import_from(source));
    for (KvCache& cache : fresh.kv) {
      cache.resize(source.length());
      RETURN_IF_ERROR(import_cache(cache, source));
    }
    caches_ = std::move(fresh);
    length_ = source.length();
    last_step_rows_ = 0;
    return {};
  }

  const Model* model() const { return model_.get(); }
  KvCache& cache(size_t i) { return caches_.kv[i]; }
  RecurrentHistory& recurrent(size_t i) { return caches_.recurrent[i]; }
  // Before a step: what came before is kept whole.
  void settle() {
    last_step_rows_ = 0;
    for (RecurrentHistory& r : caches_.recurrent) r.settle(length_);
  }
  void extend(int rows) { length_ += rows, last_step_rows_ = rows; }
  void cut(int64_t n) {
    length_ = n;
    last_step_rows_ = 0;
    for (KvCache& c : caches_.kv) c.truncate(n);
    for (RecurrentHistory& r : caches_.recurrent) r.truncate(n);
  }
  // The least length above 0 that can be restored.
  int64_t oldest() const {
    int64_t n = 0;
    for (const RecurrentHistory& r : caches_.recurrent) n = std::max(n, r.oldest());
    return n;
  }

 private:
  // The bytes of a head's part from the first canonical position on.
  template <class F>
  static Result<void> each_part(KvCache& cache, F f) {
    const auto first = static_cast<size_t>(first_canonical_position(cache.state(), cache.length()));
    const auto visible = [&](std::span<std::byte> all) {
      return cache.length() == 0 ? all : all.subspan(all.size() / static_cast<size_t>(cache.length()) * first);
    };
    for (int64_t h = 0; h < cache.state().heads; ++h) {
      RETURN_IF_ERROR(f(state_blob_name(cache.state(), "k", h), visible(cache.k(h))));
      RETURN_IF_ERROR(f(state_blob_name(cache.state(), "v", h), visible(cache.v(h))));
      if (cache.format() != KvFormat::int8) continue;
      RETURN_IF_ERROR(
          f(state_blob_name(cache.state(), "k_scale", h), visible(std::as_writable_bytes(cache.k_scale(h)))));
      RETURN_IF_ERROR(
          f(state_blob_name(cache.state(), "v_scale", h), visible(std::as_writable_bytes(cache.v_scale(h)))));
    }
    return {};
  }

  static Result<void> export_cache(KvCache& cache, StateSink& sink) {
    return each_part(cache, [&](const std::string& name, std::span<std::byte> bytes) { return sink.put(name, bytes); });
  }

  static Result<void> import_cache(KvCache& cache, StateSource& source) {
    return each_part(cache, [&](const std::string& name, std::span<std::byte> to) -> Result<void> {
      const auto from = source.get(name);
      RETURN_IF_ERROR(from);
      if (from->size() != to.size())
        return error(Code::bad_format, "saved state: '{}' has {} bytes, {} expected", name, from->size(), to.size());
      std::ranges::copy(*from, to.begin());
      return {};
    });
  }

  std::shared_ptr<const Model> model_;
  Caches caches_;
  int64_t length_;
  int last_step_rows_ = 0;
};

class Reference final : public Executable {
 public:
  explicit Reference(Model model) : model_(std::make_shared<const Model>(std::move(model))) {}

  const ExecutableInfo& info() const override { return model_->info; }
  bool mixes_prompt_and_decode() const override { return true; }

  Result<std::unique_ptr<Sequence>> new_sequence() override {
    return std::make_unique<ReferenceSequence>(model_, empty_caches(), 0);
  }

  MemoryNeed need(int64_t tokens, int sequences) const override {
    MemoryNeed n;
    const Caches caches = empty_caches();
    // Beside the state and the one before, a step keeps one an edge that it passes.
    const int64_t recurrent = recurrent_bytes(caches) * (2 + model_->info.max_step_rows / kDeltaChunk);
    n.state_bytes = (bytes_per_position(caches) * tokens + recurrent) * sequences;
    n.work_bytes = model_->info.max_step_rows * (model_->info.hidden * 16 + model_->info.vocabulary) * 4;
    return n;
  }

  Cost cost(const StepShape& shape) const override {  // as many operations as weights, at a few 10^8 a second
    double weights = 0;
    for (const WeightDecl& w : model_->program.weights)
      if (w.shape.size() == 2) weights += static_cast<double>(w.shape[0]) * static_cast<double>(w.shape[1]);
    return {weights * shape.rows / 4e8 / model_->options.threads};
  }

  Result<Outputs> run(const Step& step, const CancelToken& cancel) override {
    RETURN_IF_ERROR(check_step(step, model_->info, true));
    for (size_t s = 0; s < step.sequences.size(); ++s) sequence(step, static_cast<int>(s)).settle();
    auto done = run_step(step, cancel, false);
    if (done && !(std::ranges::all_of(logits_, [](float x) { return std::isfinite(x); }))) {
      undo(step);
      done = run_step(step, cancel, true);  // again, to name the op
      if (done) done = error(Code::numerics, "the logits are not finite");
    }
    if (!done) {
      undo(step);
      return failure(std::move(done));
    }
    for (size_t s = 0; s < step.sequences.size(); ++s)
      sequence(step, static_cast<int>(s))
          .extend(static_cast<int>(std::ranges::count(step.rows, static_cast<int>(s), &Row::sequence)));
    return Outputs{logits_, hidden_};
  }

  void observe(OpObserver* observer) override { observer_ = observer; }

 private:
  Caches empty_caches() const {
    Caches caches;
    for (const StateDecl& s : model_->program.states) {
      if (is_recurrent(s))
        caches.recurrent.emplace_back(s);
      else
        caches.kv.emplace_back(s, model_->info.kv);
    }
    return caches;
  }

  size_t place(int state) const { return static_cast<size_t>(model_->program.place(state)); }

  static ReferenceSequence& sequence(const Step& step, int i) {
    return static_cast<ReferenceSequence&>(*step.sequences[static_cast<size_t>(i)]);
  }

  static void undo(const Step& step) {
    for (size_t s = 0; s < step.sequences.size(); ++s)
      sequence(step, static_cast<int>(s)).cut(step.sequences[s]->length());
  }

  Result<void> run_step(const Step& step, const CancelToken& cancel, bool check_finite) {
    Context c{
        .program = model_->program,
        .weights = model_->weights,
        .step = &step,
        .rows = static_cast<int64_t>(step.rows.size()),
        .isa = model_->options.isa,
        .threads = model_->options.threads,
        .observer = observer_,
        .cache = [&](int s, int state) -> KvCache& { return sequence(step, s).cache(place(state)); },
        .recurrent = [&](int s, int state) -> RecurrentHistory& { return sequence(step, s).recurrent(place(state)); }};
    auto inputs = body_inputs(model_->program, model_->weights, step.rows);
    RETURN_IF_ERROR(inputs);
    auto body = run_function(*model_->program.function("body"), std::move(*inputs), c, cancel, check_finite);
    RETURN_IF_ERROR(body);
    const Tensor& hidden = body->at("hidden");
    hidden_ = rows_of(hidden, step, &Row::wants_hidden).f;
    logits_.clear();
    Tensor wanted = rows_of(hidden, step, &Row::wants_logits);
    c.rows = wanted.rows();
    if (c.rows == 0) return {};
    Inputs head_inputs;
    head_inputs["hidden"] = std::move(wanted);
    const std::string_view name = step.short_head ? "short_head" : "head";
    auto head = run_function(*model_->program.function(name), std::move(head_inputs), c, cancel, check_finite);
    RETURN_IF_ERROR(head);
    logits_ = std::move(head->at("logits").f);
    return {};
  }

  static Tensor rows_of(const Tensor& hidden, const Step& step, bool Row::* wanted) {
    Tensor out = make_tensor({DType::f32, {kRows, hidden.type.last()}, 0}, std::ranges::count(step.rows, true, wanted));
    int64_t at = 0;
    for (size_t r = 0; r < step.rows.size(); ++r)
      if (step.rows[r].*wanted) std::ranges::copy(hidden.row(static_cast<int64_t>(r)), out.row(at++).begin());
    return out;
  }

  std::shared_ptr<const Model> model_;
  OpObserver* observer_ = nullptr;
  std::vector<float> logits_, hidden_;
};

KvFormat kv_format_of(const Program& p) {
  for (const Function& f : p.functions)
    for (const Node& n : f.nodes)
      if (n.op == Op::kv_write) {
        const std::string_view kv = n.attributes.text("kv", "f32");
        return kv == "int8" ? KvFormat::int8 : kv == "f16" ? KvFormat::f16 : KvFormat::f32;
      }
  return KvFormat::f32;
}

}  // namespace

Result<std::unique_ptr<Executable>> make_reference(Program program, WeightSet weights,
                                                   const ReferenceOptions& options) {
  RETURN_IF_ERROR(verify(program));
  if (program.function("body") == nullptr || program.function("head") == nullptr)
    return error(Code::invalid_argument, "the program has no function 'body' or 'head'");
  for (const WeightDecl& w : program.weights) {
    if (!w.parts.empty()) continue;
    const auto view = weights.find(w.name);
    RETURN_IF_ERROR(view);
  }
  for (const StateDecl& s : program.states)
    if (is_recurrent(s)) RETURN_IF_ERROR(check_recurrent(s));
  Model m{.program = std::move(program), .weights = std::move(weights), .options = options};
  m.info = {.vocabulary = m.program.vocabulary,
            .hidden = m.program.hidden,
            .carries = carries_hidden(m.program),
            .short_vocabulary = short_vocabulary(m.program),
            .max_context = options.max_context > 0 ? options.max_context : m.program.max_context,
            .max_step_rows = options.max_step_rows,
            .max_partial_rows = options.max_step_rows,
            .truncates_freely = std::ranges::none_of(m.program.states, is_recurrent),
            .kv = kv_format_of(m.program)};
  return std::make_unique<Reference>(std::move(m));
}

}  // namespace onw
