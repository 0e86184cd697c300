#include "runtime/compile_ahead.h"

#include <algorithm>

#include "base/child_process.h"
#include "base/digest.h"
#include "base/paths.h"
#include "targets/openvino/compile.h"
#include "targets/openvino/find.h"
#include "targets/openvino/npu_machine.h"
#include "targets/openvino/platforms.h"
#include "targets/openvino/supported.h"

namespace onw {
namespace {

// What the device says of itself, or what the machine says of it.
const openvino::Platform& platform_here(const openvino::Runtime& runtime, const std::string& device) {
  if (device != "NPU") return *openvino::find_platform(device);
  return openvino::npu_platform(runtime.property(device, "DEVICE_ARCHITECTURE").value_or(""),
                                openvino::look_at_npu().name);
}

Result<void> require_device(const openvino::Runtime& runtime, const std::string& device) {
  const auto devices = runtime.devices();
  RETURN_IF_ERROR(devices);
  if (std::ranges::any_of(*devices, [&](const std::string& d) { return d.starts_with(device); })) return {};
  return error(Code::unsupported,
               "OpenVINO shows no {} on this machine: onw doctor says why. For an NPU that is not here: --platform "
               "3720, 4000 or 5010",
               device);
}

}  // namespace

openvino::BlobStore blob_store() { return openvino::BlobStore(cache_folder() / "blobs"); }

Result<openvino::BlobOptions> blob_options(const OpenedModel& model, const WeightSet& weights, std::string platform) {
  const auto digest = model.folder->digest();
  RETURN_IF_ERROR(digest);
  std::string files = *digest;  // a file of the layout cache has what it holds in its name
  for (size_t i = 1; i < weights.files.size(); ++i) files += " " + weights.files[i].path.filename().string();
  return openvino::BlobOptions{.folder = blob_store().folder(),
                               .child = {this_program().string(), std::string(openvino::kCompileCommand)},
                               .model = std::filesystem::weakly_canonical(model.folder->path()).filename().string(),
                               .weights_digest = sha256_hex(std::string_view(files)),
                               .platform = std::move(platform)};
}

Result<std::vector<openvino::Blob>> compile_ahead(const std::filesystem::path& model_folder,
                                                  const CompileAheadOptions& options) {
  const auto library = openvino::find_library(openvino::search_places());
  RETURN_IF_ERROR(library);
  auto runtime = openvino::Runtime::load(*library);
  RETURN_IF_ERROR(runtime);
  if (options.platform.empty()) RETURN_IF_ERROR(require_device(**runtime, options.device));
  const auto model = open_model(model_folder);
  RETURN_IF_ERROR(model);
  RETURN_IF_ERROR(openvino::check_supported(model->program, options.device));
  const auto weights = row_weights(*model, options.layout_observer);
  RETURN_IF_ERROR(weights);
  const openvino::Platform& platform =
      options.platform.empty() ? platform_here(**runtime, options.device) : *openvino::find_platform(options.platform);
  auto blobs = blob_options(*model, *weights, std::string(platform.name));
  RETURN_IF_ERROR(blobs);
  blobs->again = options.again;
  blobs->must_store = true;
  blobs->observer = options.observer;
  blobs->cancel = options.cancel;
  // The numbers of rows that serving takes where memory is no bound.
  const auto plan = openvino::plan_resident(platform, {});
  RETURN_IF_ERROR(plan);
  OpenVinoOptions o{.runtime = *runtime,
                    .block_rows = plan->block_rows,
                    .openvino_device = std::string(platform.openvino),
                    .properties = openvino::properties_of(platform),
                    .blobs = std::move(*blobs)};
  if (!options.platform.empty()) o.properties.emplace_back("NPU_PLATFORM", options.platform);
  return openvino::compile_into_store(model->program, *weights, o, platform.formats);
}

}  // namespace onw
