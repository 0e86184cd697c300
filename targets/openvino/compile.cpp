#include "targets/openvino/compile.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>

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

// A blob that does not load is made anew, once; what then does not load either is compiled here.
Result<CompiledModel> load_or_rebuild(const CompileJob& job, const CompileSetup& setup, const Blob& blob,
                                      const BlobStore& store, const CancelToken& cancel) {
  auto loaded = load_blob(blob, setup, store);
  if (loaded) return loaded;
  spdlog::warn("the compiled graph {} of {} does not load ({}): compiling it again", job.segment, setup.model,
               loaded.error().message);
  store.remove(blob.record.key);
  const auto again = compile_all(std::span(&job, 1), setup, store, {}, cancel);
  RETURN_IF_ERROR(again);
  loaded = load_blob(again->front(), setup, store);
  if (loaded) return loaded;
  store.remove(blob.record.key);
  const auto memory = as_tensor(*setup.runtime, *setup.constants);
  RETURN_IF_ERROR(memory);
  return setup.runtime->compile(job.xml, *memory, setup.device, setup.properties);
}

Result<CompiledBlocks> compile_by_store(const Program& program, const CutFunction& cut, const WeightSet& weights,
                                        const OpenVinoOptions& options, std::string_view device) {
  auto s = jobs_for_store(program, cut, weights, options, device);
  RETURN_IF_ERROR(s);
  const BlobStore store(options.blobs->folder);
  CancelToken own;
  CancelToken& cancel = options.blobs->cancel ? *options.blobs->cancel : own;
  const auto blobs = compile_all(s->jobs, s->setup, store, observer_of(options, cancel), cancel);
  RETURN_IF_ERROR(blobs);
  CompiledBlocks compiled;
  for (size_t i = 0; i < blobs->size(); ++i) {
    if (cancel.cancelled()) return error(Code::cancelled, "stopped");
    auto model = load_or_rebuild(s->jobs[i], s->setup, (*blobs)[i], store, cancel);
    RETURN_IF_ERROR(model);
    auto graph = Graph::of(std::move(*model), options.runtime, s->graphs[i].ir, s->graphs[i].rows);
    RETURN_IF_ERROR(graph);
    put(compiled, std::move(*graph), s->graphs[i]);
    s->constants->drop_file_pages();
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
  const BlobStore store(options.blobs->folder);
  const CancelToken never;
  const CancelToken& cancel = options.blobs->cancel ? *options.blobs->cancel : never;
  const auto blobs = compile_all(std::span(&job, 1), setup, store, options.blobs->observer, cancel);
  RETURN_IF_ERROR(blobs);
  return load_or_rebuild(job, setup, blobs->front(), store, cancel);
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

Result<CompiledModel> load_compiled(const Blob& blob, const Constants& constants, const Properties& properties,
                                    const OpenVinoOptions& options) {
  CHECK(options.blobs.has_value());
  const BlobStore store(options.blobs->folder);
  auto loaded = load_blob(blob, setup_of(constants, properties, options), store);
  if (!loaded) store.remove(blob.record.key);
  return loaded;
}

Result<std::vector<Blob>> compile_into_store(const Program& program, const WeightSet& weights,
                                             const OpenVinoOptions& options, std::string_view device) {
  CHECK(options.blobs.has_value());
  const auto cut = cut_at_host_steps(*program.function("body"));
  RETURN_IF_ERROR(cut);
  const auto s = jobs_for_store(program, *cut, weights, options, device);
  RETURN_IF_ERROR(s);
  const CancelToken never;
  return compile_all(s->jobs, s->setup, BlobStore(options.blobs->folder), options.blobs->observer,
                     options.blobs->cancel ? *options.blobs->cancel : never);
}

}  // namespace onw::openvino
