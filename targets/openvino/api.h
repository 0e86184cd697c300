// The functions of OpenVINO's C library that onw calls, found while the program runs: onw needs nothing of OpenVINO to
// be built. Their names, arguments and numbers are the library's binary interface, unchanged since 2022; what did move
// between releases (the numbers of element types) is asked of the library itself (runtime.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

#include "base/result.h"

namespace onw::openvino {

using Status = int;  // 0: done; else status_text names it

struct ov_core;
struct ov_model;
struct ov_compiled_model;
struct ov_infer_request;
struct ov_tensor;
struct ov_port;
struct ov_remote_context;

struct ov_version {
  const char* build;
  const char* description;
};
struct ov_device_list {
  char** names;
  size_t count;
};
struct ov_shape {
  int64_t rank;
  int64_t* dims;
};

// One record of a profile, as the library lays it out.
struct ov_profile_entry {
  int status;
  int64_t real_microseconds;
  int64_t cpu_microseconds;
  const char* name;
  const char* implementation;  // "brgemm_avx512_i8"
  const char* kind;            // "FullyConnected"
};
struct ov_profile_list {
  ov_profile_entry* entries;
  size_t count;
};

struct Functions {
  Status (*get_version)(ov_version* version);
  void (*version_free)(ov_version* version);
  const char* (*last_error)();  // of the calling thread; null in releases before 2023.1
  const char* (*status_text)(Status status);
  void (*free)(const char* text);

  Status (*core_create)(ov_core** core);
  void (*core_free)(ov_core* core);
  Status (*available_devices)(const ov_core* core, ov_device_list* devices);
  void (*device_list_free)(ov_device_list* devices);
  Status (*get_property)(const ov_core* core, const char* device, const char* key, char** value);
  Status (*set_property)(const ov_core* core, const char* device, ...);  // one name, one value
  Status (*read_model)(const ov_core* core, const char* xml, size_t bytes, const ov_tensor* weights, ov_model** model);
  Status (*compile)(const ov_core* core, const ov_model* model, const char* device, size_t property_words,
                    ov_compiled_model** compiled, ...);

  void (*model_free)(ov_model* model);
  Status (*model_inputs)(const ov_model* model, size_t* count);
  Status (*model_input)(const ov_model* model, size_t index, ov_port** port);
  Status (*port_element_type)(const ov_port* port, int* type);
  void (*port_free)(ov_port* port);

  Status (*import_blob)(const ov_core* core, const char* blob, size_t bytes, const char* device,
                        ov_compiled_model** compiled);
  void (*compiled_free)(ov_compiled_model* compiled);
  Status (*compiled_property)(const ov_compiled_model* compiled, const char* key, char** value);
  Status (*create_request)(const ov_compiled_model* compiled, ov_infer_request** request);
  Status (*export_blob)(const ov_compiled_model* compiled, const char* path);

  void (*request_free)(ov_infer_request* request);
  Status (*set_tensor)(ov_infer_request* request, const char* name, const ov_tensor* tensor);
  Status (*infer)(ov_infer_request* request);
  Status (*start_async)(ov_infer_request* request);
  Status (*wait)(ov_infer_request* request);
  Status (*profile)(const ov_infer_request* request, ov_profile_list* list);
  void (*profile_free)(ov_profile_list* list);

  Status (*tensor_from_memory)(int type, ov_shape shape, void* memory, ov_tensor** tensor);
  Status (*tensor_data)(const ov_tensor* tensor, void** memory);
  void (*tensor_free)(ov_tensor* tensor);

  // Null in a library without them: then memory is our own.
  Status (*default_context)(const ov_core* core, const char* device, ov_remote_context** context);
  Status (*create_host_tensor)(const ov_remote_context* context, int type, ov_shape shape, ov_tensor** tensor);
  void (*context_free)(ov_remote_context* context);
};

// Loads the library and finds every function. Errors: not_found, unsupported; both say what to do.
Result<Functions> load_functions(const std::filesystem::path& library);

}  // namespace onw::openvino
