#include "targets/openvino/compile_jobs.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <thread>

#include "base/child_process.h"
#include "base/memory.h"
#include "base/output_file.h"
#include "base/topology.h"
#include "targets/openvino/compile_child.h"
#include "targets/openvino/routes.h"

namespace onw::openvino {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLookAgain = std::chrono::milliseconds(50);

// What every Linux package of OpenVINO leaves out.
constexpr std::string_view kNoCompiler =
    "this machine has no compiler for NPUs: install Intel's package intel-driver-compiler-npu (the NPU driver brings "
    "it) and put its libopenvino_intel_npu_compiler*.so beside OpenVINO's plugins, or compile on a PC with an NPU";

// A plugin that is missing or does not load: of a package of its own, or of half an installation.
constexpr std::string_view kNoPlugin =
    "OpenVINO's plugin for this device is missing or does not load: install OpenVINO anew (pip install openvino, or "
    "the "
    "package of the plugin beside it)";

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

bool lacks_compiler(std::string_view message) {
  return message.find("libopenvino_intel_npu_compiler") != std::string_view::npos ||
         message.find("driver compiler requires a valid device") != std::string_view::npos;
}

bool lacks_plugin(std::string_view message) {
  return message.find("is not registered in the OpenVINO Runtime") != std::string_view::npos ||
         (message.find("Cannot load library") != std::string_view::npos && !lacks_compiler(message));
}

// What the installation lacks, not the graph: the next start may find it mended, so nothing of it is kept.
bool is_about_the_installation(std::string_view message) { return lacks_compiler(message) || lacks_plugin(message); }

bool is_about_the_disk(Code code) { return code == Code::no_space || code == Code::io; }

// Tries that end for want of memory before onw does not try again by itself.
constexpr int64_t kMostTries = 3;

// What must be free for another try: more than the compiler had when it ended.
int64_t wanted_bytes(const BlobRecord& r) { return r.peak_bytes + r.peak_bytes / 10; }

// Whether what failed then would fail now.
bool still_holds(const BlobRecord& r, double limit_seconds, int64_t free_bytes) {
  if (r.ended == Ended::timed_out) return limit_seconds <= r.limit_seconds * 1.2;
  if (r.ended == Ended::out_of_memory) return r.tries >= kMostTries || free_bytes < wanted_bytes(r);
  return true;
}

double gigabytes(int64_t bytes) { return static_cast<double>(bytes) / 1e9; }

// When onw tries again what ended so, for people. `known`: from an earlier start.
std::string when_again(const BlobRecord& r, bool known) {
  const std::string_view from = known ? "known from an earlier try; " : "";
  if (r.ended != Ended::out_of_memory)
    return known ? fmt::format(" ({}onw compile MODEL --again tries anew)", from) : "";
  if (r.tries >= kMostTries)
    return fmt::format(" ({}tried {} times: close other programs, then onw compile MODEL --again)", from, r.tries);
  return fmt::format(
      " ({}{:.1f} GB were free; onw tries again at a start with {:.1f} GB free, or with onw compile MODEL --again)",
      from, gigabytes(r.free_bytes), gigabytes(wanted_bytes(r)));
}

// "the plugin's compiler, the driver's compiler: out of luck; ...": what several say alike is said once.
std::string how_each_ended(const std::vector<BlobRecord>& tried) {
  std::string text;
  for (size_t i = 0; i < tried.size();) {
    std::string routes = tried[i].route;
    const std::string& message = tried[i].message;
    size_t next = i + 1;
    for (; next < tried.size() && tried[next].message == message; ++next) routes += " and " + tried[next].route;
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", routes, message);
    i = next;
  }
  return text;
}

// The bytes of the constants that a graph names.
int64_t constant_bytes(std::string_view xml) {
  constexpr std::string_view kSize = " size=\"";
  int64_t bytes = 0;
  for (size_t at = xml.find(kSize); at != std::string_view::npos; at = xml.find(kSize, at + 1))
    bytes += std::atoll(xml.data() + at + kSize.size());
  return bytes;
}

class Compiler {
 public:
  Compiler(const CompileSetup& setup, const BlobStore& store, const CancelToken& cancel)
      : setup_(setup),
        store_(store),
        cancel_(cancel),
        routes_(routes_for(setup.platform)),
        facts_(blob_facts(*setup.runtime, setup.device)),
        limit_seconds_(setup.seconds > 0 ? setup.seconds : routes_.seconds) {}

  // The constants beside the weight files, for all children.
  Result<void> share_constants() {
    auto memory = MemoryFile::create();
    RETURN_IF_ERROR(memory);
    auto file = OutputFile::open(memory->path());
    RETURN_IF_ERROR(file);
    RETURN_IF_ERROR(file->write(setup_.constants->memory()));
    RETURN_IF_ERROR(file->finish());
    constants_ = std::move(*memory);
    return {};
  }

  int children_at_once(std::span<const CompileJob> jobs) const {
    if (setup_.at_once > 0) return setup_.at_once;
    int64_t largest = 0;
    for (const CompileJob& job : jobs) largest = std::max(largest, constant_bytes(job.xml));
    const int64_t one = routes_.child_bytes + 3 * largest;
    const int cores = plan_threads(read_machine()).threads;
    return static_cast<int>(std::clamp<int64_t>(available_memory_bytes() / one, 1, std::max(1, cores / 2)));
  }

  std::string key(const CompileJob& job, const Route& route) const {
    return blob_key({.xml = job.xml,
                     .constants = setup_.constants,
                     .weights_digest = setup_.weights_digest,
                     .openvino = setup_.runtime->version(),
                     .device = setup_.device,
                     .device_facts = facts_,
                     .properties = all_properties(job, route)});
  }
  void run_beside_others() { has_company_ = true; }

  // Children that run end soon, and no further one begins.
  void stop() { stopping_ = true; }

  std::string first_key(const CompileJob& job) const { return key(job, routes_.routes.front()); }

  // By the first route that works. `hit`: nothing was compiled. `waits` is called where another process compiles it.
  Result<Blob> make(const CompileJob& job, bool& hit, const std::function<void()>& waits) {
    std::vector<BlobRecord> tried;
    for (const Route& route : routes_.routes) {
      if (!suits(route, job.xml, constant_bytes(job.xml))) continue;
      // What is of the head alone makes no other route for the rest.
      if (std::ranges::find(tried, key(job, route), &BlobRecord::key) != tried.end()) continue;
      auto blob = by_route(job, route, hit, waits);
      RETURN_IF_ERROR(blob);
      if (blob->record.ended == Ended::compiled || blob->record.ended == Ended::unloadable) return blob;
      tried.push_back(std::move(blob->record));
    }
    const std::string how = how_each_ended(tried);
    if (is_about_the_installation(how))
      return error(Code::unsupported, "{} ({})", lacks_compiler(how) ? kNoCompiler : kNoPlugin, how);
    const BlobRecord& last = tried.back();
    return error(last.ended == Ended::out_of_memory ? Code::out_of_memory : Code::unsupported,
                 "{} for {} rows does not compile for {}: {}{}", job.segment, job.rows, setup_.platform, how,
                 when_again(last, hit));
  }

  bool cancelled() const { return stopping_ || cancel_.cancelled(); }

 private:
  // With what is set for devices beforehand: it, too, makes another graph.
  Properties all_properties(const CompileJob& job, const Route& route) const {
    Properties all = route_properties(route, job.is_head, setup_.properties);
    for (const auto& [device, properties] : setup_.settings)
      for (const auto& [name, value] : properties) all.emplace_back(device + "." + name, value);
    return all;
  }

  // A record of what there is already: a blob that is whole, or a failure that would be repeated.
  std::optional<Blob> known(const std::string& key) const {
    auto record = store_.find(key);
    if (!record) return std::nullopt;
    if (record->ended == Ended::compiled) {
      const bool wrong = record->self_check && !record->self_check->passed;
      if ((wrong && setup_.again) || !store_.verify(*record)) return std::nullopt;
      return Blob{std::move(*record)};
    }
    if (setup_.again || is_about_the_installation(record->message) ||
        !still_holds(*record, limit_seconds_, available_memory_bytes()))
      return std::nullopt;
    return Blob{std::move(*record)};
  }

  Result<Blob> by_route(const CompileJob& job, const Route& route, bool& hit, const std::function<void()>& waits) {
    const std::string key = this->key(job, route);
    hit = true;
    if (auto there = known(key)) return std::move(*there);
    Result<FileLock> lock = store_.try_lock(key);
    if (lock && !lock->held()) waits();
    for (; lock && !lock->held(); lock = store_.try_lock(key)) {
      if (cancelled()) return error(Code::cancelled, "stopped");
      std::this_thread::sleep_for(kLookAgain);
    }
    if (auto there = lock ? known(key) : std::nullopt) return std::move(*there);  // made while we waited
    hit = false;
    BlobRecord record{.key = key,
                      .model = setup_.model,
                      .segment = job.segment,
                      .device = setup_.device,
                      .platform = setup_.platform,
                      .route = std::string(route.name),
                      .openvino = setup_.runtime->version(),
                      .model_folder = setup_.model_folder,
                      .rows = job.rows,
                      .limit_seconds = limit_seconds_};
    if (const auto before = store_.find(key); before && !setup_.again) record.tries = before->tries;
    if (!lock) return without_the_disk(job, route, std::move(record), lock.error());
    if (const auto trouble = disk_trouble()) return without_the_disk(job, route, std::move(record), *trouble);
    return into_the_store(job, route, std::move(record));
  }

  // What the disk said when it took nothing: no further graph is compiled twice for it.
  std::optional<Error> disk_trouble() {
    const std::lock_guard hold(trouble_mutex_);
    return trouble_;
  }

  Result<Blob> into_the_store(const CompileJob& job, const Route& route, BlobRecord record) {
    const std::string key = record.key;
    record.without_weights = route.without_weights;
    auto ended =
        run(job, route, std::move(record), route.without_weights ? store_.partial_folder(key) : store_.partial(key));
    if (!ended || ended->ended != Ended::compiled) forget_partial(key);
    if (ended) {
      if (ended->ended != Ended::compiled && is_about_the_installation(ended->message)) return Blob{std::move(*ended)};
      const auto added = store_.add(*ended);
      if (added) return Blob{std::move(*ended)};
      ended = Failure(added.error());
    }
    forget_partial(key);
    if (!is_about_the_disk(ended.error().code)) return Failure(ended.error());
    return without_the_disk(job, route, {.key = key, .segment = job.segment, .limit_seconds = limit_seconds_},
                            ended.error());
  }

  void forget_partial(const std::string& key) const {
    std::error_code ignored;
    std::filesystem::remove(store_.partial(key), ignored);
    std::filesystem::remove_all(store_.partial_folder(key), ignored);
  }

  // The store takes nothing: this process goes on with a blob in memory, which holds the weights.
  Result<Blob> without_the_disk(const CompileJob& job, const Route& route, BlobRecord record, const Error& why) {
    {
      const std::lock_guard hold(trouble_mutex_);
      trouble_ = why;
    }
    if (setup_.must_store) return error(why.code, "{}. {}; what is done stays", why.message, store_remedy(why.code));
    if (route.without_weights) {
      record.ended = Ended::refused;
      record.message = why.message;
      return Blob{std::move(record)};
    }
    auto memory = MemoryFile::create();
    RETURN_IF_ERROR(memory);
    const auto file = std::make_shared<const MemoryFile>(std::move(*memory));
    auto ended = run(job, route, std::move(record), file->path_for_others());
    RETURN_IF_ERROR(ended);
    return Blob{std::move(*ended), file, why};
  }

  // One child, and how it ended; a second one, alone, where memory was short and others may have had it.
  Result<BlobRecord> run(const CompileJob& job, const Route& route, BlobRecord record,
                         const std::filesystem::path& output) {
    CompileOrder order{.library = setup_.runtime->library(),
                       .xml = std::string(job.xml),
                       .files = setup_.constants->files(),
                       .memory = constants_.path_for_others(),
                       .memory_bytes = static_cast<int64_t>(setup_.constants->memory().size()),
                       .device = setup_.device,
                       .properties = route_properties(route, job.is_head, setup_.properties),
                       .settings = setup_.settings,
                       .output = output,
                       .most_bytes = route.without_weights ? constant_bytes(job.xml) / 4 : 0};
    order.memory_at = setup_.constants->bytes() - order.memory_bytes;
    {
      const std::shared_lock together(alone_);
      auto ended = run_one(order, record);
      if (!ended || ended->ended != Ended::out_of_memory || !has_company_) return ended;
    }
    const std::unique_lock alone(alone_);
    return run_one(order, record);
  }

  Result<BlobRecord> run_one(const CompileOrder& order, BlobRecord record) {
    auto memory = MemoryFile::create();
    RETURN_IF_ERROR(memory);
    RETURN_IF_ERROR(write(*memory, to_text(order)));
    std::vector<std::string> words = setup_.child;
    words.push_back(memory->path_for_others().string());
    record.free_bytes = available_memory_bytes();
    const auto start = Clock::now();
    const auto outcome = run_child(words, limit_seconds_, [this] { return cancelled(); });
    record.seconds = seconds_since(start);
    RETURN_IF_ERROR(outcome);
    if (outcome->stopped) return error(Code::cancelled, "stopped");
    if (!outcome->succeeded()) {
      constexpr int kKilled = 9;
      record.ended = outcome->timed_out           ? Ended::timed_out
                     : outcome->signal == kKilled ? Ended::out_of_memory
                                                  : Ended::crashed;
      record.message = "the compiler " + describe(*outcome, limit_seconds_);
      if (record.ended == Ended::out_of_memory) note_memory(record, *outcome);
      return record;
    }
    const auto answer = parse_answer(outcome->output);
    if (!answer) {
      if (is_about_the_disk(answer.error().code)) return Failure(answer.error());
      record.ended = answer.error().code == Code::out_of_memory ? Ended::out_of_memory : Ended::refused;
      record.message = answer.error().message;
      if (record.ended == Ended::out_of_memory) note_memory(record, *outcome);
      return record;
    }
    record.ended = Ended::compiled;
    record.tries = 0;
    record.bytes = answer->bytes;
    record.digest = answer->digest;
    return record;
  }

  static void note_memory(BlobRecord& record, const ChildOutcome& outcome) {
    record.peak_bytes = outcome.peak_bytes;
    ++record.tries;
  }

  static Result<void> write(const MemoryFile& memory, std::string_view text) {
    auto file = OutputFile::open(memory.path());
    RETURN_IF_ERROR(file);
    RETURN_IF_ERROR(file->write(std::as_bytes(std::span(text))));
    return file->finish();
  }

  const CompileSetup& setup_;
  const BlobStore& store_;
  const CancelToken& cancel_;
  const PlatformRoutes& routes_;
  std::vector<std::pair<std::string, std::string>> facts_;
  double limit_seconds_ = 0;
  MemoryFile constants_;
  std::shared_mutex alone_;  // held as a whole by a child that may not share memory with others
  std::atomic<bool> has_company_ = false;
  std::atomic<bool> stopping_ = false;
  std::mutex trouble_mutex_;
  std::optional<Error> trouble_;
};

// The jobs, each taken by one worker, and what became of them.
class Queue {
 public:
  Queue(std::span<const CompileJob> jobs, Compiler& compiler, const CompileObserver& observer)
      : jobs_(jobs), compiler_(compiler), observer_(observer), made_(jobs.size()) {
    std::map<std::string, size_t> seen;
    for (size_t i = 0; i < jobs.size(); ++i) {
      const auto [first, is_new] = seen.emplace(compiler.first_key(jobs[i]), i);
      same_as_.push_back(first->second);
      if (is_new) unique_.push_back(i);
    }
  }

  void work() {
    for (;;) {
      const size_t turn = next_++;
      if (turn >= unique_.size()) return;
      const size_t i = unique_[turn];
      tell({.job = jobs_[i], .done = done_, .total = total()});
      const auto start = Clock::now();
      bool hit = false;
      const auto waits = [&] { tell({.job = jobs_[i], .waits = true, .done = done_, .total = total()}); };
      auto blob = compiler_.cancelled() ? Result<Blob>(error(Code::cancelled, "stopped"))
                                        : compiler_.make(jobs_[i], hit, waits);
      if (!blob) return give_up(std::move(blob.error()));
      made_[i] = std::move(*blob);
      ++done_;
      tell({.job = jobs_[i],
            .ended = true,
            .hit = hit,
            .done = done_,
            .total = total(),
            .seconds = seconds_since(start)});
    }
  }

  Result<std::vector<Blob>> result() {
    if (failed_) return Failure(*failed_);
    std::vector<Blob> all;
    for (const size_t i : same_as_) all.push_back(*made_[i]);
    return all;
  }

 private:
  int total() const { return static_cast<int>(unique_.size()); }

  void give_up(Error why) {
    next_ = unique_.size();
    {
      const std::lock_guard lock(telling_);
      if (!failed_) failed_ = std::move(why);
    }
    compiler_.stop();
  }

  void tell(const CompileEvent& event) {
    const std::lock_guard lock(telling_);
    if (observer_) observer_(event);
  }

  std::span<const CompileJob> jobs_;
  Compiler& compiler_;
  const CompileObserver& observer_;
  std::vector<size_t> same_as_, unique_;
  std::vector<std::optional<Blob>> made_;
  std::atomic<size_t> next_ = 0;
  std::atomic<int> done_ = 0;
  std::mutex telling_;
  std::optional<Error> failed_;
};

}  // namespace

Result<std::vector<Blob>> compile_all(std::span<const CompileJob> jobs, const CompileSetup& setup,
                                      const BlobStore& store, const CompileObserver& observer,
                                      const CancelToken& cancel) {
  Compiler compiler(setup, store, cancel);
  RETURN_IF_ERROR(compiler.share_constants());
  Queue queue(jobs, compiler, observer);
  {
    const int at_once = std::min(compiler.children_at_once(jobs), static_cast<int>(jobs.size()));
    if (at_once > 1) compiler.run_beside_others();
    std::vector<std::jthread> workers;
    for (int i = 1; i < at_once; ++i) workers.emplace_back([&queue] { queue.work(); });
    queue.work();
  }
  auto made = queue.result();
  RETURN_IF_ERROR(made);
  if (const auto pruned = store.prune(store.cap_bytes(), setup.runtime->version()); !pruned)
    spdlog::warn("{}", pruned.error().message);
  return made;
}

}  // namespace onw::openvino
