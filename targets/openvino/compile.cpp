#include "targets/openvino/compile.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "targets/openvino/expert_side.h"
#include "targets/openvino/graphs.h"

namespace onw::openvino {
namespace {

constexpr int kQuantisedGroup = 128;

// Whether rows quantised by groups of 128 meet every weight's scales.
bool takes_groups(const Program& program) {
  return std::ranges::all_of(program.weights, [](const WeightDecl& w) {
    const FormatInfo& f = info(w.format);
    return w.role != WeightRole::matrix || f.plain() || f.group % kQuantisedGroup == 0;  // 0: one scale per output
  });
}

// A graph before it is compiled.
struct Lowered {
  std::string segment;
  int64_t rows = kRows;
  Ir ir;
  bool is_head = false;
};

std::vector<int64_t> block_sizes(const OpenVinoOptions& options) {
  return options.block_rows.empty() ? std::vector<int64_t>{kRows} : options.block_rows;
}

Result<std::vector<Lowered>> lower_rows(const Program& program, const CutFunction& cut, const WeightSet& weights,
                                        Constants& constants, int64_t rows, std::string_view device) {
  auto graphs = lower_program(program, cut, weights, constants, rows, device);
  RETURN_IF_ERROR(graphs);
  std::vector<Lowered> all;
  for (size_t s = 0; s < graphs->body.size(); ++s)
    all.push_back({fmt::format("body.{}", s), rows, std::move(graphs->body[s]), false});
  all.push_back({"head", rows, std::move(graphs->head), true});
  return all;
}

Result<Tensor> as_tensor(const Runtime& runtime, const Constants& constants) {
  const std::array<int64_t, 1> bytes = {constants.bytes()};
  return runtime.tensor(DType::u8, bytes, constants.data());
}

void put(CompiledBlocks& to, Graph graph, const Lowered& from) {
  if (to.blocks.empty() || to.blocks.back().rows != from.rows) to.blocks.emplace_back().rows = from.rows;
  (from.is_head ? to.blocks.back().head : to.blocks.back().body).push_back(std::move(graph));
}

// Graph by graph in this process, each number of rows lowered when its turn comes.
Result<CompiledBlocks> compile_here(const Program& program, const CutFunction& cut, const WeightSet& weights,
                                    const OpenVinoOptions& options, std::string_view device) {
  auto constants = Constants::create(weights);
  RETURN_IF_ERROR(constants);
  const std::vector<int64_t> sizes = block_sizes(options);
  const int total = static_cast<int>(sizes.size() * (cut.segments.size() + 1));
  int done = 0;
  CompiledBlocks compiled;
  for (const int64_t rows : sizes) {
    const auto graphs = lower_rows(program, cut, weights, *constants, rows, device);
    RETURN_IF_ERROR(graphs);
    const auto memory = as_tensor(*options.runtime, *constants);
    RETURN_IF_ERROR(memory);
    for (const Lowered& g : *graphs) {
      auto graph = Graph::compile(options.runtime, g.ir, *memory, rows, options.openvino_device,
                                  device_properties(options, program));
      RETURN_IF_ERROR(graph);
      put(compiled, std::move(*graph), g);
      constants->drop_file_pages();  // packed: only one copy of the weights stays
      if (options.on_compiled && !options.on_compiled(++done, total)) return error(Code::cancelled, "stopped");
    }
  }
  compiled.constants = std::make_unique<Constants>(std::move(*constants));
  return compiled;
}

// All graphs, and what compiling them into the store takes.
struct StoreJobs {
  std::unique_ptr<Constants> constants;
  std::vector<Lowered> graphs;
  std::vector<CompileJob> jobs;  // one for each; they point into it
  CompileSetup setup;
};

CompileSetup setup_of(const Constants& constants, Properties properties, const OpenVinoOptions& options) {
  const BlobOptions& b = *options.blobs;
  return {.runtime = options.runtime,
          .constants = &constants,
          .model = b.model,
          .model_folder = b.model_folder,
          .weights_digest = b.weights_digest,
          .device = options.openvino_device,
          .platform = b.platform,
          .properties = std::move(properties),
          .settings = b.settings,
          .child = b.child,
          .seconds = b.seconds,
          .again = b.again,
          .must_store = b.must_store};
}

Result<StoreJobs> jobs_for_store(const Program& program, const CutFunction& cut, const WeightSet& weights,
                                 const OpenVinoOptions& options, std::string_view device) {
  auto constants = Constants::create(weights);
  RETURN_IF_ERROR(constants);
  StoreJobs s;
  s.constants = std::make_unique<Constants>(std::move(*constants));
  for (const int64_t rows : block_sizes(options)) {
    auto graphs = lower_rows(program, cut, weights, *s.constants, rows, device);
    RETURN_IF_ERROR(graphs);
    for (Lowered& g : *graphs) s.graphs.push_back(std::move(g));
  }
  for (const Lowered& g : s.graphs) s.jobs.push_back({g.segment, g.rows, g.ir.xml, g.is_head});
  s.setup = setup_of(*s.constants, device_properties(options, program), options);
  return s;
}

CompileObserver observer_of(const OpenVinoOptions& options, CancelToken& cancel) {
  return [&options, &cancel](const CompileEvent& e) {
    if (options.blobs->observer) options.blobs->observer(e);
    if (e.ended && options.on_compiled && !options.on_compiled(e.done, e.total)) cancel.cancel();
  };
}

// Compiled graphs of jobs, from blobs to what runs.
class Loader {
 public:
  Loader(std::span<const CompileJob> jobs, const CompileSetup& setup, const BlobStore& store, const CancelToken& cancel,
         BlobUse& use)
      : jobs_(jobs), setup_(setup), store_(store), cancel_(cancel), use_(use), models_(jobs.size()) {}

  // What does not load is made anew, once and all of it together; what then does not load either is compiled here, and
  // so it is at each start from then on, because compiling it for the store has shown to be of no use.
  Result<std::vector<CompiledModel>> load(std::vector<Blob> blobs) {
    for (const Blob& blob : blobs) note_unkept(blob);
    auto broken = load_all(all_of(blobs.size()), blobs);
    RETURN_IF_ERROR(broken);
    if (!broken->empty()) {
      use_.remade += static_cast<int>(broken->size());
      use_.why_remade = why_;
      RETURN_IF_ERROR(make_anew(*broken, blobs));
      broken = load_all(*broken, blobs);
      RETURN_IF_ERROR(broken);
      for (const size_t i : *broken) {
        (void)store_.note_unloadable(blobs[i].record.key, why_);  // a store that takes nothing costs another try
        blobs[i].record.ended = Ended::unloadable;
        blobs[i].record.message = why_;
      }
    }
    for (size_t i = 0; i < blobs.size(); ++i) {
      if (!models_[i]) RETURN_IF_ERROR(compile_here(i, blobs[i].record));
      use_.records.push_back(blobs[i].record);
    }
    std::vector<CompiledModel> all;
    for (auto& model : models_) all.push_back(std::move(*model));
    return all;
  }

 private:
  static std::vector<size_t> all_of(size_t count) {
    std::vector<size_t> all(count);
    std::iota(all.begin(), all.end(), size_t{0});
    return all;
  }

  void note_unkept(const Blob& blob) {
    if (!blob.why_not_stored) return;
    ++use_.unkept;
    use_.why_unkept = blob.why_not_stored;
  }

  // Those that do not load.
  Result<std::vector<size_t>> load_all(const std::vector<size_t>& which, const std::vector<Blob>& blobs) {
    std::vector<size_t> broken;
    for (const size_t i : which) {
      if (cancel_.cancelled()) return error(Code::cancelled, "stopped");
      if (blobs[i].record.ended == Ended::unloadable) continue;
      auto model = load_blob(jobs_[i], blobs[i], setup_, store_);
      if (model) {
        models_[i] = std::move(*model);
        setup_.constants->drop_file_pages();
      } else {
        why_ = model.error().message;
        broken.push_back(i);
      }
    }
    return broken;
  }

  Result<void> make_anew(const std::vector<size_t>& which, std::vector<Blob>& blobs) {
    std::vector<CompileJob> jobs;
    for (const size_t i : which) {
      store_.remove(blobs[i].record.key);
      jobs.push_back(jobs_[i]);
    }
    auto again = compile_all(jobs, setup_, store_, {}, cancel_);
    RETURN_IF_ERROR(again);
    for (size_t n = 0; n < which.size(); ++n) blobs[which[n]] = std::move((*again)[n]);
    return {};
  }

  Result<void> compile_here(size_t i, const BlobRecord& record) {
    ++use_.unloadable;
    use_.why_unloadable = record.message;
    if (setup_.must_store)
      return error(Code::unsupported,
                   "{} for {} rows compiles, but does not load: {}. Update the device's driver and OpenVINO, then onw "
                   "compile MODEL --again",
                   jobs_[i].segment, jobs_[i].rows, record.message);
    if (cancel_.cancelled()) return error(Code::cancelled, "stopped");
    const auto memory = as_tensor(*setup_.runtime, *setup_.constants);
    RETURN_IF_ERROR(memory);
    auto model = setup_.runtime->compile(jobs_[i].xml, *memory, setup_.device, setup_.properties);
    RETURN_IF_ERROR(model);
    models_[i] = std::move(*model);
    return {};
  }

  std::span<const CompileJob> jobs_;
  const CompileSetup& setup_;
  const BlobStore& store_;
  const CancelToken& cancel_;
  BlobUse& use_;
  std::vector<std::optional<CompiledModel>> models_;
  std::string why_;  // the last one that did not load
};

// From the store, or into it.
Result<std::vector<CompiledModel>> by_store(std::span<const CompileJob> jobs, const CompileSetup& setup,
                                            const OpenVinoOptions& options, const CompileObserver& observer,
                                            const CancelToken& cancel) {
  const BlobStore store(options.blobs->folder);
  auto blobs = compile_all(jobs, setup, store, observer, cancel);
  RETURN_IF_ERROR(blobs);
  BlobUse nobody_asks;
  return Loader(jobs, setup, store, cancel, options.blobs->use ? *options.blobs->use : nobody_asks)
      .load(std::move(*blobs));
}

Result<CompiledBlocks> compile_by_store(const Program& program, const CutFunction& cut, const WeightSet& weights,
                                        const OpenVinoOptions& options, std::string_view device) {
  auto s = jobs_for_store(program, cut, weights, options, device);
  RETURN_IF_ERROR(s);
  CancelToken own;
  CancelToken& cancel = options.blobs->cancel ? *options.blobs->cancel : own;
  auto models = by_store(s->jobs, s->setup, options, observer_of(options, cancel), cancel);
  RETURN_IF_ERROR(models);
  CompiledBlocks compiled;
  for (size_t i = 0; i < models->size(); ++i) {
    auto graph = Graph::of(std::move((*models)[i]), options.runtime, s->graphs[i].ir, s->graphs[i].rows);
    RETURN_IF_ERROR(graph);
    put(compiled, std::move(*graph), s->graphs[i]);
  }
  compiled.constants = std::move(s->constants);
  return compiled;
}

}  // namespace

Properties device_properties(const OpenVinoOptions& o, const Program& program) {
  if (!o.properties.empty()) return o.properties;
  const bool groups = !o.exact && takes_groups(program);
  Properties all = {{"DYNAMIC_QUANTIZATION_GROUP_SIZE", groups ? std::to_string(kQuantisedGroup) : "0"},
                    {"PERFORMANCE_HINT", "LATENCY"},
                    {"INFERENCE_NUM_THREADS", std::to_string(o.threads)}};
  if (o.exact || groups) all.emplace_back("INFERENCE_PRECISION_HINT", "f32");
  return all;
}

Result<CompiledBlocks> compile_blocks(const Program& program, const CutFunction& cut, const WeightSet& weights,
                                      const OpenVinoOptions& options, std::string_view device) {
  return options.blobs ? compile_by_store(program, cut, weights, options, device)
                       : compile_here(program, cut, weights, options, device);
}

Result<CompiledModel> compile_graph(const CompileJob& job, const Constants& constants, const Properties& properties,
                                    const OpenVinoOptions& options) {
  if (!options.blobs) {
    const auto memory = as_tensor(*options.runtime, constants);
    RETURN_IF_ERROR(memory);
    return options.runtime->compile(job.xml, *memory, options.openvino_device, properties);
  }
  const CompileSetup setup = setup_of(constants, properties, options);
  const CancelToken never;
  auto models = by_store(std::span(&job, 1), setup, options, options.blobs->observer,
                         options.blobs->cancel ? *options.blobs->cancel : never);
  RETURN_IF_ERROR(models);
  return std::move(models->front());
}

Result<std::vector<Blob>> compile_for_later(std::span<const CompileJob> jobs, const Constants& constants,
                                            const Properties& properties, const OpenVinoOptions& options,
                                            const CancelToken& cancel) {
  CHECK(options.blobs.has_value());
  CompileSetup setup = setup_of(constants, properties, options);
  setup.at_once = 1;
  setup.must_store = true;  // rather none than one that fills the memory
  return compile_all(jobs, setup, BlobStore(options.blobs->folder), options.blobs->observer, cancel);
}

Result<CompiledModel> load_compiled(const CompileJob& job, const Blob& blob, const Constants& constants,
                                    const Properties& properties, const OpenVinoOptions& options) {
  CHECK(options.blobs.has_value());
  if (blob.record.ended == Ended::unloadable) return error(Code::unsupported, "{}", blob.record.message);
  const BlobStore store(options.blobs->folder);
  auto loaded = load_blob(job, blob, setup_of(constants, properties, options), store);
  if (!loaded) store.remove(blob.record.key);
  return loaded;
}

namespace {

// Each with small constants of its own, as a target compiles them (expert_side.cpp).
Result<std::vector<Blob>> experts_into_store(const Program& program, const CutFunction& cut, const WeightSet& weights,
                                             const OpenVinoOptions& options, std::string_view device,
                                             const CancelToken& cancel) {
  std::vector<Blob> blobs;
  if (options.expert_requests == 0) return blobs;
  const auto segments = segments_before_experts(program, cut, weights);
  RETURN_IF_ERROR(segments);
  const auto shapes =
      expert_shapes(program, cut, weights, rows_together(*segments, options.max_step_rows, options.block_rows.back()));
  RETURN_IF_ERROR(shapes);
  for (const ExpertShape& shape : *shapes) {
    auto constants = Constants::create({});
    RETURN_IF_ERROR(constants);
    const auto ir = lower_experts(shape, *constants, device);
    RETURN_IF_ERROR(ir);
    const CompileJob job{segment_name(shape), shape.rows, ir->xml};
    auto one = compile_all(std::span(&job, 1), setup_of(*constants, device_properties(options, program), options),
                           BlobStore(options.blobs->folder), options.blobs->observer, cancel);
    RETURN_IF_ERROR(one);
    blobs.push_back(std::move(one->front()));
  }
  return blobs;
}

}  // namespace

Result<std::vector<Blob>> compile_into_store(const Program& program, const WeightSet& weights,
                                             const OpenVinoOptions& options, std::string_view device) {
  CHECK(options.blobs.has_value());
  const Function& body = *program.function("body");
  const auto cut = options.block_rows.empty() ? cut_at_host_steps(body) : cut_for_fixed_rows(body);
  RETURN_IF_ERROR(cut);
  const auto s = jobs_for_store(program, *cut, weights, options, device);
  RETURN_IF_ERROR(s);
  const CancelToken never;
  const CancelToken& cancel = options.blobs->cancel ? *options.blobs->cancel : never;
  auto blobs = compile_all(s->jobs, s->setup, BlobStore(options.blobs->folder), options.blobs->observer, cancel);
  RETURN_IF_ERROR(blobs);
  auto experts = experts_into_store(program, *cut, weights, options, device, cancel);
  RETURN_IF_ERROR(experts);
  blobs->insert(blobs->end(), experts->begin(), experts->end());
  return blobs;
}

}  // namespace onw::openvino
