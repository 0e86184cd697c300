#include <algorithm>
#include <array>

#include "base/mapped_file.h"
#include "targets/openvino/compile_child.h"
#include "targets/openvino/compile_jobs.h"
#include "targets/openvino/routes.h"

namespace onw::openvino {
namespace {

// By the plugin, from what it kept: beside the text, which names the weights.
Result<CompiledModel> load_without_weights(const CompileJob& job, const BlobRecord& record, const CompileSetup& setup,
                                           const BlobStore& store) {
  const auto folder = store.open_folder(record);
  RETURN_IF_ERROR(folder);
  const auto& routes = routes_for(setup.platform).routes;
  const auto route = std::ranges::find(routes, record.route, &Route::name);
  if (route == routes.end()) return error(Code::unsupported, "compiled in a way that this onw does not know");
  const std::array<int64_t, 1> bytes = {setup.constants->bytes()};
  const auto weights = setup.runtime->tensor(DType::u8, bytes, setup.constants->data());
  RETURN_IF_ERROR(weights);
  auto model = setup.runtime->compile(job.xml, *weights, setup.device,
                                      kept_in(*folder, route_properties(*route, job.is_head, setup.properties)));
  RETURN_IF_ERROR(model);
  if (!came_from_cache(*model)) return error(Code::unsupported, "the device does not take it from its cache");
  return model;
}

}  // namespace

Result<CompiledModel> load_blob(const CompileJob& job, const Blob& blob, const CompileSetup& setup,
                                const BlobStore& store) {
  if (blob.record.without_weights) return load_without_weights(job, blob.record, setup, store);
  auto mapped = blob.memory ? MappedFile::open(blob.memory->path()) : store.open(blob.record);
  RETURN_IF_ERROR(mapped);
  if (routes_for(setup.platform).imports_by_device)
    for (const auto& [name, value] : setup.properties)
      RETURN_IF_ERROR(setup.runtime->set_property(setup.device, name, value));
  const auto kept = std::make_shared<const MappedFile>(std::move(*mapped));
  auto model = setup.runtime->import(kept->bytes(), setup.device, kept);
  kept->drop_pages();
  return model;
}

}  // namespace onw::openvino
