#include "runtime/load.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/memory.h"
#include "base/paths.h"
#include "base/topology.h"
#include "graph/ops.h"
#include "kernels/isa.h"
#include "models/registry.h"
#include "passes/bind_formats.h"
#include "passes/cut.h"
#include "passes/quantise.h"
#include "runtime/choose_device.h"
#include "runtime/compile_ahead.h"
#include "runtime/engine.h"
#include "runtime/load_mtp.h"
#include "runtime/load_with_standby.h"
#include "runtime/measured_steps.h"
#include "runtime/measured_threads.h"
#include "runtime/mtp.h"
#include "store/cache_store.h"
#include "store/model_folder.h"
#include "targets/cpu/cpu.h"
#include "targets/openvino/expert_side.h"
#include "targets/openvino/fused.h"
#include "targets/openvino/openvino.h"
#include "targets/openvino/platforms.h"
#include "targets/openvino/stand_in.h"
#include "targets/reference/reference.h"
#include "targets/relaid_weights.h"

namespace onw {
namespace {

struct Machinery {
  Isa isa = Isa::generic;
  ThreadPlan threads;
};

struct Device {
  std::string_view name;
  Result<std::unique_ptr<Executable>> (*make)(OpenedModel model, const Machinery& machinery, const LoadOptions& options,
                                              const DeviceChoice& choice);
};

KvFormat kv_format(const OpenedModel& model, const LoadOptions& options) {
  return options.kv.value_or(kv_default(model.program).format);
}

// Rows of a step of the layer that predicts a further token: its work buffers stay small, its weights are read once
// for many rows of a prompt.
constexpr int kMtpRows = 128;

OpenedMtp wanted_mtp(const OpenedModel& model, const LoadOptions& options) {
  if (!options.mtp) return {};
  OpenedMtp mtp = open_mtp(model);
  if (!mtp.why_not.empty() && options.on_no_mtp) options.on_no_mtp(mtp.why_not);
  return mtp;
}

Result<std::unique_ptr<Executable>> make_reference_device(OpenedModel model, const Machinery& machinery,
                                                          const LoadOptions& options, const DeviceChoice&) {
  Program program = options.quantised ? quantise_activations(model.program, name(kv_format(model, options)))
                                      : set_kv_format(model.program, name(options.kv.value_or(KvFormat::f32)));
  const auto find = [folder = model.folder](std::string_view name) { return folder->weight(name); };
  const WeightSet weights = {.find = find, .owner = model.folder};
  const auto make = [&](Program p, WeightSet set, int rows) {
    return make_reference(std::move(p), std::move(set),
                          {.isa = machinery.isa,
                           .threads = machinery.threads.threads,
                           .max_step_rows = rows,
                           .max_context = options.max_context});
  };
  auto made = make(std::move(program), weights, options.max_step_rows);
  const OpenedMtp mtp = wanted_mtp(model, options);
  if (!made || !mtp.program) return made;
  Program layer = options.quantised ? quantise_activations(*mtp.program, name(kv_format(model, options)))
                                    : set_kv_format(*mtp.program, name(options.kv.value_or(KvFormat::f32)));
  const WeightSet own = mtp_weights(*mtp.program, weights);
  auto made_layer = make(std::move(layer), own, kMtpRows);
  RETURN_IF_ERROR(made_layer);
  auto both = make_mtp(std::move(*made), std::move(*made_layer), shared_weight_bytes(model, *mtp.program, own));
  RETURN_IF_ERROR(both);
  return std::move(*both);
}

Result<std::unique_ptr<Executable>> make_cpu_device(OpenedModel model, const Machinery& machinery,
                                                    const LoadOptions& options, const DeviceChoice&) {
  if (!options.quantised)
    return error(Code::unsupported,
                 "the CPU device computes with quantised activations: take --device reference or openvino:CPU");
  const OpenedMtp mtp = wanted_mtp(model, options);
  auto tiled = cpu_weights({model.folder, with_mtp_weights(model, mtp)}, options.observer);
  RETURN_IF_ERROR(tiled);
  const MeasuredThreads measured(cache_folder(), model.folder->engine().files.at(std::string(kWeightsFile)).sha256,
                                 machinery.isa, machinery.threads);
  CpuOptions cpu = {.kv = kv_format(model, options),
                    .isa = machinery.isa,
                    .threads = machinery.threads.threads,
                    .cpus = machinery.threads.cpus,
                    .fast_threads = machinery.threads.fast,
                    .max_step_rows = options.max_step_rows,
                    .max_context = options.max_context,
                    .thread_choices = measured.read(),
                    .on_thread_choices = [measured](const auto& choices) { measured.write(choices); }};
  if (!mtp.program) return make_cpu(model.program, std::move(*tiled), cpu);
  cpu.pool = std::make_shared<ThreadPool>(ThreadPlan{.threads = cpu.threads, .cpus = cpu.cpus});
  auto made = make_cpu(model.program, *tiled, cpu);
  RETURN_IF_ERROR(made);
  cpu.max_step_rows = std::min(kMtpRows, options.max_step_rows);
  cpu.thread_choices = {};
  cpu.on_thread_choices = {};
  const WeightSet own = mtp_weights(*mtp.program, *tiled);
  auto layer = make_cpu(*mtp.program, own, cpu);
  RETURN_IF_ERROR(layer);
  auto both = make_mtp(std::move(*made), std::move(*layer), shared_weight_bytes(model, *mtp.program, own));
  RETURN_IF_ERROR(both);
  return std::move(*both);
}

// Which graphs there are, and where they run.
Result<void> plan_graphs(OpenVinoOptions& o, const openvino::Platform& platform, const openvino::ModelShape& shape,
                         const DeviceChoice& choice) {
  const auto plan = plan_resident(platform, shape);
  RETURN_IF_ERROR(plan);
  o.platform = platform.name;
  o.openvino_device = platform.openvino;
  if (platform.dynamic_rows) return {};
  o.block_rows = plan->block_rows;
  o.resident_graphs = plan->resident_graphs;
  o.attention_requests = plan->attention_requests;
  o.expert_requests = plan->expert_requests;
  o.fused.variants = plan->fused_variants;
  o.fused.layers = plan->fused_layers;
  o.properties = choice.stand_in ? openvino::stand_in_properties() : properties_of(platform);
  return choice.stand_in ? openvino::prepare_stand_in(*o.runtime, o.exact) : Result<void>();
}

Result<std::unique_ptr<Executable>> make_openvino_device(OpenedModel model, const Machinery& machinery,
                                                         const LoadOptions& options, const DeviceChoice& choice) {
  const openvino::Platform* platform = openvino::find_platform(choice.platform);
  CHECK(platform != nullptr);
  if (options.mtp && options.on_no_mtp && open_mtp(model).program)
    options.on_no_mtp("the layer that predicts a further token runs on the CPU device alone (--device CPU)");
  auto runtime = openvino::Runtime::load(choice.library);
  RETURN_IF_ERROR(runtime);
  auto weights = row_weights(model, options.observer);
  RETURN_IF_ERROR(weights);
  OpenVinoOptions o{.runtime = std::move(*runtime),
                    .kv = options.kv.value_or(platform->kv.value_or(kv_format(model, options))),
                    .exact = !options.quantised,
                    .isa = machinery.isa,
                    .threads = machinery.threads.threads,
                    .cpus = machinery.threads.cpus,
                    .max_step_rows = options.max_step_rows,
                    .max_context = options.max_context,
                    .on_compiled = options.on_compiled};
  o.fused.at_once_positions = options.fused_at_once;
  o.fused.on_news = options.on_fused;
  auto shape = graph_shape(model.program, *weights, options.fused);
  RETURN_IF_ERROR(shape);
  shape->memory_bytes = available_memory_bytes();
  RETURN_IF_ERROR(plan_graphs(o, *platform, *shape, choice));
  if (platform->dynamic_rows) return make_openvino(model.program, std::move(*weights), o);
  // Compilers of NPUs and GPUs take minutes, and crash.
  auto blobs = blob_options(model, *weights, o.platform);
  RETURN_IF_ERROR(blobs);
  if (choice.stand_in) blobs->settings = openvino::stand_in_settings(o.exact);
  blobs->cancel = options.cancel;
  blobs->use = std::make_shared<openvino::BlobUse>();
  if (options.with_blobs) options.with_blobs(*blobs);
  o.blobs = std::move(*blobs);
  auto made = make_openvino(model.program, std::move(*weights), o);
  RETURN_IF_ERROR(made);
  if (const std::string text = describe(*o.blobs->use); !text.empty())
    options.notice ? options.notice(text) : spdlog::warn("{}", text);
  return made;
}

constexpr Device kDevices[] = {
    {"CPU", make_cpu_device},
    {"NPU", make_openvino_device},
    {"GPU", make_openvino_device},
    {"openvino:CPU", make_openvino_device},
    {"reference", make_reference_device},
};

// config.json, engine.json and weights say the same: kernels read as far as the Program says, whatever is there.
Result<void> check_consistency(const Program& p, const ModelFolder& folder) {
  const EngineInfo& e = folder.engine();
  const std::tuple<const char*, int64_t, int64_t> dimensions[] = {
      {"layers", e.layers, p.layers}, {"hidden", e.hidden, p.hidden}, {"vocabulary", e.vocabulary, p.vocabulary}};
  for (const auto& [key, engine, config] : dimensions)
    if (engine != config)
      return error(Code::bad_format,
                   "engine.json: 'dimensions.{}' is {}, config.json makes it {}. The files are of different models: "
                   "convert again",
                   key, engine, config);
  for (const WeightDecl& w : p.weights) {
    const std::vector<int64_t> stored = folder.shape(w.name);
    if (stored.empty() || stored == w.shape) continue;  // a missing one is told by who binds it
    return error(Code::bad_format,
                 "{}: '{}' is [{}], config.json makes it [{}]. The files are of different models: convert again",
                 kEngineFile, w.name, fmt::join(stored, ", "), fmt::join(w.shape, ", "));
  }
  return {};
}

}  // namespace

Result<OpenedModel> open_model(const std::filesystem::path& path) {
  auto opened = ModelFolder::open(path);
  RETURN_IF_ERROR(opened);
  const auto folder = std::make_shared<const ModelFolder>(std::move(*opened));
  auto program = build_program(folder->config());
  if (!program) return failure(std::move(program), folder->path().string());
  if (auto same = check_consistency(*program, *folder); !same) return failure(std::move(same), folder->path().string());
  const auto format_of = [&folder](std::string_view name) -> std::optional<WeightFormat> {
    const auto weight = folder->weight(name);
    return weight ? std::optional(weight->format) : std::nullopt;
  };
  if (auto bound = bind_formats(*program, format_of); !bound) return failure(std::move(bound), folder->path().string());
  return OpenedModel{folder, std::move(*program)};
}

Result<openvino::ModelShape> graph_shape(const Program& program, const WeightSet& weights, std::optional<bool> fused) {
  const auto cut = cut_for_fixed_rows(*program.function("body"));
  RETURN_IF_ERROR(cut);
  openvino::ModelShape shape{.segments = static_cast<int>(cut->segments.size()), .fused = fused};
  for (const auto& between : cut->host)
    shape.attentions +=
        static_cast<int>(std::ranges::count_if(between, [](const HostStep& s) { return s.node.op == Op::attention; }));
  const auto experts = openvino::segments_before_experts(program, *cut, weights);
  RETURN_IF_ERROR(experts);
  shape.experts = static_cast<int>(experts->size());
  for (const WeightDecl& w : program.weights)
    if (const auto view = weights.find(w.name); view && w.role != WeightRole::expert && w.role != WeightRole::lookup)
      shape.weight_bytes += view->stored_bytes();
  if (!openvino::can_fuse(*cut)) shape.fused = false;
  return shape;
}

CacheStore layout_cache() { return CacheStore(cache_folder() / "layouts"); }

Result<WeightSet> row_weights(const OpenedModel& model, const LoadObserver& observer) {
  return weights_in_layout(model.folder, model.program, Layout::rows, layout_cache(), observer);
}

Result<WeightSet> cpu_weights(const OpenedModel& model, const LoadObserver& observer) {
  return weights_in_layout(model.folder, model.program, Layout::tiles, layout_cache(), observer);
}

namespace {

Result<DeviceChoice> choose(const std::string& device, const std::string& chosen_by) {
  auto choice = choose_device(device);
  if (!choice && !chosen_by.empty())
    return error(choice.error().code, "{} (because of {})", choice.error().message, chosen_by);
  return choice;
}

}  // namespace

Result<std::unique_ptr<Executable>> load_executable(const std::filesystem::path& model_folder,
                                                    const LoadOptions& options) {
  const auto choice = choose(options.device, options.device_chosen_by);
  RETURN_IF_ERROR(choice);
  return load_executable(model_folder, options, *choice);
}

Result<std::unique_ptr<Executable>> load_executable(const std::filesystem::path& model_folder,
                                                    const LoadOptions& options, const DeviceChoice& choice) {
  const auto device = std::ranges::find(kDevices, choice.device, &Device::name);
  CHECK(device != std::end(kDevices));
  const auto isa = active_isa();
  RETURN_IF_ERROR(isa);
  auto model = open_model(model_folder);
  RETURN_IF_ERROR(model);
  if (options.max_context < 0 || options.max_context > model->program.max_context)
    return error(Code::invalid_argument, "context {} is not possible: the model takes 1 to {} tokens",
                 options.max_context, model->program.max_context);
  const Machinery machinery = {.isa = *isa, .threads = plan_threads(read_machine(), options.threads)};
  return device->make(std::move(*model), machinery, options, choice);
}

// Where the costs of steps on this machine are kept.
static Result<std::filesystem::path> step_table_of(const std::filesystem::path& model_folder,
                                                   const EngineOptions& options) {
  const auto folder = ModelFolder::open(model_folder);
  RETURN_IF_ERROR(folder);
  const auto isa = active_isa();
  RETURN_IF_ERROR(isa);
  return step_table_file(cache_folder(), folder->engine().files.at(std::string(kWeightsFile)).sha256, options.device,
                         *isa, plan_threads(read_machine(), options.threads));
}

// A device that takes minutes to be made, or may be lost, has the CPU beside it: whoever did not ask for it gets an
// answer whatever it does.
Result<std::unique_ptr<Engine>> Engine::load(const std::filesystem::path& model_folder, const EngineOptions& options) {
  const auto choice = choose(options.device, options.device_chosen_by);
  RETURN_IF_ERROR(choice);
  EngineOptions chosen = options;
  chosen.device = choice->device;
  chosen.device_reason = choice->reason;
  if (choice->device == "NPU" || choice->device == "GPU")
    return load_with_standby(model_folder, chosen, *choice, !options.device.empty());
  auto executable = load_executable(model_folder,
                                    {.device = chosen.device,
                                     .kv = options.kv,
                                     .threads = options.threads,
                                     .observer = options.load_observer,
                                     .mtp = options.mtp,
                                     .on_no_mtp = [&](const std::string& why) { chosen.no_mtp_reason = why; }},
                                    *choice);
  RETURN_IF_ERROR(executable);
  auto table = step_table_of(model_folder, chosen);
  RETURN_IF_ERROR(table);
  chosen.step_table = std::move(*table);
  return create(std::move(*executable), chosen);
}

}  // namespace onw
