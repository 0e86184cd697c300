#include "targets/openvino/fused_variants.h"

#include <algorithm>
#include <cmath>

namespace onw::openvino {
namespace {

// Steps that a loaded variant must have rested before another takes its room: conversations of two lengths in turns
// would load them at every step.
constexpr int64_t kRest = 16;

// Mean KL of q's rows against p's, no number where a logit is none.
double mean_kl(std::span<const float> p, std::span<const float> q, size_t vocabulary) {
  const auto log_sum = [](std::span<const float> x, double most) {
    double sum = 0;
    for (const float v : x) sum += std::exp(v - most);
    return most + std::log(sum);
  };
  double all = 0;
  for (size_t at = 0; at < p.size(); at += vocabulary) {
    const auto a = p.subspan(at, vocabulary), b = q.subspan(at, vocabulary);
    const double a_sum = log_sum(a, *std::ranges::max_element(a)), b_sum = log_sum(b, *std::ranges::max_element(b));
    for (size_t i = 0; i < vocabulary; ++i) all += std::exp(a[i] - a_sum) * ((a[i] - a_sum) - (b[i] - b_sum));
  }
  return all / static_cast<double>(p.size() / vocabulary);
}

}  // namespace

FusedVariants::FusedVariants(FusedSetup setup) : setup_(std::move(setup)) {
  for (FusedForm& form : fused_forms(setup_.block_rows, *setup_.places.cache))
    variants_.push_back(std::make_unique<Variant>(Variant{.form = std::move(form), .graph = {}}));
  maker_ = std::thread([this] { make_all(); });
  loader_ = std::thread([this] { load_all(); });
}

FusedVariants::~FusedVariants() {
  {
    const std::lock_guard lock(mutex_);
    stop_.cancel();
  }
  changed_.notify_all();
  maker_.join();
  loader_.join();
}

void FusedVariants::tell(const Variant& v, FusedNews::What what, const std::string& why) const {
  if (setup_.options.fused.on_news)
    setup_.options.fused.on_news({.rows = v.form.rows, .length = v.form.length, .what = what, .why = why});
}

// ---- In the background

// A conversation of a quarter of the length comes to half of it, where the one before may end, while it is made.
bool FusedVariants::is_due(const FusedForm& form) const {
  return form.length == variants_.front()->form.length || form.length / 2 < setup_.options.fused.at_once_positions ||
         form.length / 4 <= longest_;
}

// False: nobody wants any.
bool FusedVariants::wait_until_due(const Variant& v) {
  std::unique_lock lock(mutex_);
  const auto ends = [&] { return stop_.cancelled() || is_due(v.form); };
  if (!ends()) {
    lock.unlock();
    tell(v, FusedNews::What::done);
    lock.lock();
    changed_.wait(lock, ends);
  }
  return !stop_.cancelled();
}

void FusedVariants::make_all() {
  std::vector<int64_t> without;  // numbers of rows of which one did not compile: a longer one would not either
  for (const auto& v : variants_) {
    if (std::ranges::find(without, v->form.rows) != without.end()) {
      const std::lock_guard lock(mutex_);
      v->state = Variant::State::failed;
      continue;
    }
    if (!wait_until_due(*v)) return;
    const auto made = make(*v);
    if (!made && made.error().code == Code::cancelled) return;
    {
      const std::lock_guard lock(mutex_);
      v->state = made ? Variant::State::compiled : Variant::State::failed;
    }
    changed_.notify_all();
    if (!made) without.push_back(v->form.rows);
    tell(*v, made ? FusedNews::What::compiled : FusedNews::What::failed, made ? "" : made.error().message);
  }
  tell(*variants_.back(), FusedNews::What::done);
}

// Each with small constants of its own: where they lie is part of the text, which must be the same every time.
Result<void> FusedVariants::make(Variant& v) const {
  auto constants = Constants::create(setup_.weights);
  RETURN_IF_ERROR(constants);
  v.constants = std::make_unique<Constants>(std::move(*constants));
  auto graphs = lower_fused(setup_.program, setup_.pieces, v.form, *setup_.places.cache, setup_.weights, *v.constants,
                            setup_.formats);
  RETURN_IF_ERROR(graphs);
  v.graphs = std::move(*graphs);
  if (!setup_.options.blobs) return {};
  auto blobs = compile_for_later(fused_jobs(v.form, v.graphs), *v.constants, setup_.properties, setup_.options, stop_);
  RETURN_IF_ERROR(blobs);
  v.blobs = std::move(*blobs);
  const auto check = [](const Blob& b) { return b.record.self_check; };
  for (const Blob& b : v.blobs)
    if (check(b) && !check(b)->passed) return error(Code::numerics, "{}", check(b)->message);
  v.proven = std::ranges::all_of(v.blobs, [&](const Blob& b) { return check(b).has_value(); });
  return {};
}

// ---- While nothing runs

Result<std::vector<CompiledModel>> FusedVariants::models_of(const Variant& v) const {
  std::vector<CompiledModel> models;
  const std::vector<CompileJob> jobs = fused_jobs(v.form, v.graphs);
  for (size_t i = 0; i < jobs.size(); ++i) {
    auto model = v.blobs.empty() ? compile_graph(jobs[i], *v.constants, setup_.properties, setup_.options)
                                 : load_compiled(jobs[i], v.blobs[i], *v.constants, setup_.properties, setup_.options);
    RETURN_IF_ERROR(model);
    models.push_back(std::move(*model));
  }
  v.constants->drop_file_pages();
  return models;
}

void FusedVariants::rest(bool resting) {
  {
    const std::lock_guard lock(mutex_);
    resting_ = resting;
  }
  changed_.notify_all();
}

Upkeep FusedVariants::upkeep() const {
  const std::lock_guard lock(mutex_);
  const auto to_make = [&](const auto& v) { return v->state == Variant::State::waiting && is_due(v->form); };
  const bool to_load = next_to_load() != nullptr;
  return {.busy = loading_,
          .more_to_come = loading_ || to_load || std::ranges::any_of(variants_, to_make),
          .wants_rest = loading_ || to_load,
          .improvements = loads_};
}

bool FusedVariants::has_room() const {
  const auto loaded = std::ranges::count_if(variants_, [](const auto& v) { return v->graph.has_value(); });
  return loaded < setup_.options.fused.variants;
}

// The one that was used longest ago, if it has rested. Null: none.
FusedVariants::Variant* FusedVariants::who_goes() const {
  Variant* oldest = nullptr;
  for (const auto& v : variants_)
    if (v->graph && (oldest == nullptr || v->used < oldest->used)) oldest = v.get();
  return oldest != nullptr && step_ - oldest->used >= kRest ? oldest : nullptr;
}

// For each number of rows the shortest that covers the last step, decoding first; then the next longer ones, if there
// is room without anybody's loss. Under the lock, while nothing is being loaded.
FusedVariants::Variant* FusedVariants::next_to_load() const {
  const bool room = has_room();
  if (!room && who_goes() == nullptr) return nullptr;
  Variant* next = nullptr;
  for (const int64_t rows : setup_.block_rows) {
    int place = 0;  // among those that cover it
    for (const auto& v : variants_) {
      if (v->form.rows != rows || v->form.length < last_ || v->state != Variant::State::compiled) continue;
      if (++place > 2) break;
      if (v->graph) continue;
      if (place == 1) return v.get();
      if (room && next == nullptr) next = v.get();
    }
  }
  return next;
}

// No answer is under way when a graph begins to be loaded; one that comes meanwhile waits, or is computed elsewhere.
void FusedVariants::load_all() {
  std::unique_lock lock(mutex_);
  for (;;) {
    Variant* next = nullptr;
    changed_.wait(lock, [&] { return stop_.cancelled() || (resting_ && (next = next_to_load()) != nullptr); });
    if (stop_.cancelled()) return;
    loading_ = true;
    if (!has_room()) who_goes()->graph.reset();
    lock.unlock();
    load(*next);
    lock.lock();
    loading_ = false;
    changed_.notify_all();
  }
}

void FusedVariants::load(Variant& v) {
  auto graph = [&]() -> Result<FusedGraph> {
    auto models = models_of(v);
    RETURN_IF_ERROR(models);
    return FusedGraph::create(setup_.places, v.form, v.graphs, std::move(*models));
  }();
  if (!graph) return give_up(v, graph.error().message);
  v.graph = std::move(*graph);
  v.used = step_;
  {
    const std::lock_guard lock(mutex_);
    ++loads_;
  }
  tell(v, FusedNews::What::loaded);
}

// ---- In a step

void FusedVariants::begin_step() {
  std::unique_lock lock(mutex_);
  resting_ = false;
  changed_.wait(lock, [&] { return !loading_; });
  ++step_;
}

FusedVariants::Variant* FusedVariants::choose(int64_t rows, int64_t cached) {
  {
    const std::lock_guard lock(mutex_);
    last_ = cached;
    if (cached > longest_) {
      longest_ = cached;
      changed_.notify_all();
    }
  }
  const auto found = std::ranges::find_if(
      variants_, [&](const auto& v) { return v->graph && v->form.rows == rows && v->form.length >= cached; });
  if (found == variants_.end()) return nullptr;
  (*found)->used = step_;
  return found->get();
}

void FusedVariants::judge(Variant& v, std::span<const float> fused, std::span<const float> segments,
                          int64_t vocabulary) {
  const double kl = mean_kl(segments, fused, static_cast<size_t>(vocabulary));
  const bool passed = kl <= kMostKl;  // false for no number
  const auto rows = static_cast<int>(static_cast<int64_t>(segments.size()) / vocabulary);
  const std::string message =
      fmt::format("with attention inside, a KL of {:.2g} to the graphs without ({} at most)", kl, kMostKl);
  for (const Blob& b : v.blobs)  // best effort: else the next run looks again
    if (b.memory == nullptr)
      (void)BlobStore(setup_.options.blobs->folder)
          .note_self_check(
              b.record.key,
              {.passed = passed, .rows = rows, .mean_kl = std::isfinite(kl) ? kl : 1e9, .message = message});
  v.proven = passed;
  if (!passed) give_up(v, message);
}

void FusedVariants::give_up(Variant& v, const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    v.state = Variant::State::failed;
  }
  v.graph.reset();
  tell(v, FusedNews::What::failed, why);
}

bool FusedVariants::give_up_chosen(const std::string& why) {
  bool any = false;
  for (const auto& v : variants_) {
    if (!v->graph || v->used != step_) continue;
    give_up(*v, why);
    any = true;
  }
  return any;
}

}  // namespace onw::openvino
