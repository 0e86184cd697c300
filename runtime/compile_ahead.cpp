#include "runtime/compile_ahead.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "base/child_process.h"
#include "base/digest.h"
#include "base/paths.h"
#include "models/registry.h"
#include "runtime/self_check.h"
#include "targets/openvino/compile_ahead.h"
#include "targets/openvino/find.h"
#include "targets/openvino/npu_machine.h"
#include "targets/openvino/openvino.h"
#include "targets/openvino/platforms.h"
#include "targets/openvino/stand_in.h"
#include "targets/rest.h"

namespace onw {
namespace {

// What the device says of itself, or what the machine says of it.
const openvino::Platform& platform_here(const openvino::Runtime& runtime, const std::string& device, bool stand_in) {
  if (device != "NPU") return *openvino::find_platform(device);
  if (stand_in) return openvino::npu_platform(openvino::kStandInArchitecture, openvino::look_at_npu().name);
  return openvino::npu_platform(runtime.property(device, "DEVICE_ARCHITECTURE").value_or(""),
                                openvino::look_at_npu().name);
}

Result<void> require_device(const openvino::Runtime& runtime, const std::string& device) {
  const auto devices = runtime.devices();
  RETURN_IF_ERROR(devices);
  if (std::ranges::any_of(*devices, [&](const std::string& d) { return d.starts_with(device); })) return {};
  return error(Code::unsupported, "OpenVINO shows no {} on this machine: onw doctor says why{}", device,
               device == "NPU" ? ". For an NPU that is not here: --platform 3720, 4000 or 5010" : "");
}

// What becomes of graphs with attention inside, which are compiled after the others.
class FusedEar {
 public:
  void hear(const FusedNews& news) {
    const std::lock_guard lock(mutex_);
    if (news.what == FusedNews::What::compiled) tokens_ = std::max(tokens_, news.length);
    if (news.what == FusedNews::What::failed && trouble_.empty()) trouble_ = news.why;
    done_ = done_ || news.what == FusedNews::What::done;
    changed_.notify_all();
  }

  // Until nothing is left to compile. Errors: cancelled.
  Result<void> wait(const std::shared_ptr<CancelToken>& cancel) {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, std::chrono::milliseconds(50), [this] { return done_; }))
      if (cancel != nullptr && cancel->cancelled()) return error(Code::cancelled, "stopped");
    return {};
  }

  void tell(CompiledAhead& ahead) const {
    const std::lock_guard lock(mutex_);
    ahead.fused_tokens = tokens_;
    ahead.fused_trouble = trouble_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  int64_t tokens_ = 0;
  std::string trouble_;
};

// The graphs with attention inside that belong to those of `use`.
void add_fused(const openvino::BlobUse& use, CompiledAhead& ahead) {
  const auto all = blob_store().entries();
  if (!all || use.records.empty()) return;
  const openvino::BlobRecord& one = use.records.front();
  for (const openvino::BlobRecord& r : *all)
    if (r.segment.starts_with("fused") && r.ended == openvino::Ended::compiled && r.model_folder == one.model_folder &&
        r.platform == one.platform && r.openvino == one.openvino)
      ahead.graphs.push_back(r);
}

// The device itself: its graphs are compiled as serving wants them, and loaded.
Result<CompiledAhead> for_device_here(const std::filesystem::path& model_folder, const std::filesystem::path& library,
                                      const openvino::Runtime& runtime, const CompileAheadOptions& options) {
  bool stand_in = false;
  if (options.device == "NPU") {
    const auto asked = openvino::npu_stand_in();
    RETURN_IF_ERROR(asked);
    stand_in = *asked;
  }
  if (!stand_in) RETURN_IF_ERROR(require_device(runtime, options.device));
  const DeviceChoice choice{.device = options.device,
                            .platform = std::string(platform_here(runtime, options.device, stand_in).name),
                            .reason = {},
                            .library = library,
                            .stand_in = stand_in};
  std::shared_ptr<openvino::BlobUse> use;
  const auto ear = std::make_shared<FusedEar>();
  const auto loaded = load_executable(model_folder,
                                      {.device = options.device,
                                       .observer = options.layout_observer,
                                       .cancel = options.cancel,
                                       .fused = options.fused,
                                       .fused_at_once = options.fused_tokens,
                                       .on_fused = [ear](const FusedNews& news) { ear->hear(news); },
                                       .with_blobs =
                                           [&](openvino::BlobOptions& blobs) {
                                             blobs.again = options.again;
                                             blobs.must_store = true;
                                             blobs.observer = options.observer;
                                             use = blobs.use;
                                           }},
                                      choice);
  RETURN_IF_ERROR(loaded);
  CompiledAhead ahead{.graphs = use->records, .loaded = true, .stand_in = stand_in};
  RETURN_IF_ERROR(ear->wait(options.cancel));
  rest_until_done(**loaded);  // loads as many as fit
  ear->tell(ahead);
  if (ahead.fused_tokens > 0) add_fused(*use, ahead);
  if (options.again) {  // whether the device is worth having, too
    std::vector<std::string> keys;
    for (const openvino::BlobRecord& r : use->records) keys.push_back(r.key);
    KeptCheck(blob_store(), std::move(keys)).note_speeds({});
  }
  return ahead;
}

// A device that need not be here: compiled, and not tried.
Result<CompiledAhead> for_platform(const std::filesystem::path& model_folder,
                                   std::shared_ptr<const openvino::Runtime> runtime,
                                   const CompileAheadOptions& options) {
  if (openvino::stands_in_for_npu())
    return error(
        Code::usage,
        "ONW_NPU_STAND_IN puts OpenVINO's CPU device in the place of this machine's NPU: unset it for --platform "
        "{}, or leave --platform out",
        options.platform);
  const auto model = open_model(model_folder);
  RETURN_IF_ERROR(model);
  const auto weights = row_weights(*model, options.layout_observer);
  RETURN_IF_ERROR(weights);
  const openvino::Platform& platform = *openvino::find_platform(options.platform);
  auto blobs = blob_options(*model, *weights, std::string(platform.name));
  RETURN_IF_ERROR(blobs);
  blobs->again = options.again;
  blobs->must_store = true;
  blobs->observer = options.observer;
  blobs->cancel = options.cancel;
  // What serving takes where memory is no bound.
  const auto shape = graph_shape(model->program, *weights, options.fused);
  RETURN_IF_ERROR(shape);
  const auto plan = openvino::plan_resident(platform, *shape);
  RETURN_IF_ERROR(plan);
  OpenVinoOptions o{.runtime = std::move(runtime),
                    .kv = platform.kv.value_or(kv_default(model->program).format),
                    .block_rows = plan->block_rows,
                    .expert_requests = plan->expert_requests,
                    .openvino_device = std::string(platform.openvino),
                    .properties = openvino::properties_of(platform),
                    .blobs = std::move(*blobs)};
  o.properties.emplace_back("NPU_PLATFORM", options.platform);
  o.fused.variants = plan->fused_variants;
  o.fused.layers = plan->fused_layers;
  o.fused.at_once_positions = options.fused_tokens;
  auto compiled = openvino::compile_everything_into_store(model->program, *weights, o, platform.formats);
  RETURN_IF_ERROR(compiled);
  CompiledAhead ahead{.fused_tokens = compiled->fused_tokens, .fused_trouble = std::move(compiled->fused_trouble)};
  for (const openvino::Blob& blob : compiled->blobs) ahead.graphs.push_back(blob.record);
  return ahead;
}

}  // namespace

openvino::BlobStore blob_store() { return openvino::BlobStore(cache_folder() / "blobs"); }

Result<openvino::BlobOptions> blob_options(const OpenedModel& model, const WeightSet& weights, std::string platform) {
  const auto digest = model.folder->digest();
  RETURN_IF_ERROR(digest);
  std::string files = *digest;  // a file of the layout cache has what it holds in its name
  for (size_t i = 1; i < weights.files.size(); ++i) files += " " + weights.files[i].path.filename().string();
  const auto folder = std::filesystem::weakly_canonical(model.folder->path());
  return openvino::BlobOptions{.folder = blob_store().folder(),
                               .child = {this_program().string(), std::string(openvino::kCompileCommand)},
                               .model = folder.filename().string(),
                               .model_folder = folder.string(),
                               .weights_digest = sha256_hex(std::string_view(files)),
                               .platform = std::move(platform)};
}

Result<CompiledAhead> compile_ahead(const std::filesystem::path& model_folder, const CompileAheadOptions& options) {
  const auto library = openvino::find_library(openvino::search_places());
  RETURN_IF_ERROR(library);
  auto runtime = openvino::Runtime::load(*library);
  RETURN_IF_ERROR(runtime);
  return options.platform.empty() ? for_device_here(model_folder, *library, **runtime, options)
                                  : for_platform(model_folder, *runtime, options);
}

}  // namespace onw
