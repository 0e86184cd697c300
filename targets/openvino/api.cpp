#include "targets/openvino/api.h"

#include "base/shared_library.h"
#include "targets/openvino/find.h"

namespace onw::openvino {
namespace {

// Function pointers come as void*: POSIX has them of one size.
template <class F>
bool take(const SharedLibrary& library, const char* name, F& function) {
  function = reinterpret_cast<F>(library.symbol(name));
  return function != nullptr;
}

// The name of the first function that the library lacks; null where all are there.
const char* take_all(const SharedLibrary& l, Functions& f) {
  const char* missing = nullptr;
  const auto need = [&](const char* name, auto& function) {
    if (!take(l, name, function) && missing == nullptr) missing = name;
  };
  take(l, "ov_get_last_err_msg", f.last_error);
  need("ov_get_openvino_version", f.get_version);
  need("ov_version_free", f.version_free);
  need("ov_get_error_info", f.status_text);
  need("ov_free", f.free);
  need("ov_core_create", f.core_create);
  need("ov_core_free", f.core_free);
  need("ov_core_get_available_devices", f.available_devices);
  need("ov_available_devices_free", f.device_list_free);
  need("ov_core_get_property", f.get_property);
  need("ov_core_set_property", f.set_property);
  need("ov_core_read_model_from_memory_buffer", f.read_model);
  need("ov_core_compile_model", f.compile);
  need("ov_model_free", f.model_free);
  need("ov_model_inputs_size", f.model_inputs);
  need("ov_model_const_input_by_index", f.model_input);
  need("ov_port_get_element_type", f.port_element_type);
  need("ov_output_const_port_free", f.port_free);
  need("ov_core_import_model", f.import_blob);
  need("ov_compiled_model_free", f.compiled_free);
  need("ov_compiled_model_get_property", f.compiled_property);
  need("ov_compiled_model_create_infer_request", f.create_request);
  need("ov_compiled_model_export_model", f.export_blob);
  need("ov_infer_request_free", f.request_free);
  need("ov_infer_request_set_tensor", f.set_tensor);
  need("ov_infer_request_infer", f.infer);
  need("ov_infer_request_start_async", f.start_async);
  need("ov_infer_request_wait", f.wait);
  need("ov_infer_request_get_profiling_info", f.profile);
  need("ov_profiling_info_list_free", f.profile_free);
  need("ov_tensor_create_from_host_ptr", f.tensor_from_memory);
  need("ov_tensor_data", f.tensor_data);
  need("ov_tensor_free", f.tensor_free);
  take(l, "ov_core_get_default_context", f.default_context);
  take(l, "ov_remote_context_create_host_tensor", f.create_host_tensor);
  take(l, "ov_remote_context_free", f.context_free);
  return missing;
}

}  // namespace

Result<Functions> load_functions(const std::filesystem::path& path) {
  auto library = SharedLibrary::open(path);
  if (!library) return error(library.error().code, "{}. {}", library.error().message, kHowToGet);
  Functions functions{};
  if (const char* missing = take_all(*library, functions))
    return error(Code::unsupported, "{}: has no function {}: this is no OpenVINO of {} or later. {}", path.string(),
                 missing, kOldestVersion, kHowToGet);
  return functions;
}

}  // namespace onw::openvino
