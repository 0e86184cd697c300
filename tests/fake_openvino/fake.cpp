// A library with the functions of OpenVINO's that onw calls, which does what ONW_FAKE_OPENVINO says: a list of
// NAME=VALUE with ';' between them. It computes nothing: outputs are ones.
//
//   version=TEXT       what it calls itself (default 2026.4.1-fake)
//   core=fail          starting it fails
//   compile=fail|crash|none|slow|oom|kill
//                      none: there is no compiler, and its message names a folder
//                      slow: five seconds; oom: it says so; kill: as the system does where memory is short
//   compile.DRIVER=... the same where NPU_COMPILER_TYPE says so
//   compile.where=TEXT only graphs whose text has this
//   compile.once=FILE  only while there is no FILE yet
//   says=TEXT          compiling fails with these words
//   cache=none|whole|stale  with CACHE_DIR: nothing is kept there; a compiled graph with its weights; what never loads
//                      (default: a small one that loads)
//   export=fail        there is nothing to export
//   export.bytes=N     the size of a compiled graph
//   import=fail|slow   no compiled graph loads; it takes five seconds, or import.ms=N milliseconds
//   infer=nan|zero|wrong|lost|oom  the logits are no numbers, are zeros, or always name token 1; the device is gone, or
//                      has no memory
//   infer.from=N       so from the N-th run of any graph on
//   infer.where=TEXT   so in graphs that have a tensor of such a name
//   context=none       the device has no memory of its own
//
// fake_openvino_count(NAME) says what was asked of it: "compiled" graphs, "distinct" ones by their text, "requests"
// that live and the "most_requests" that did at once since "from_now_on" was asked, "runs", "set" tensors, and of them
// those that are "copied" because their memory is not the device's.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <thread>

namespace {

struct Tensor {
  float* data = nullptr;
  int64_t elements = 1;
  bool owns = false;
};
struct Request {
  std::map<std::string, Tensor> tensors;
};

std::map<std::string, int64_t, std::less<>> counts;
std::set<std::string> texts;                   // of compiled models
std::map<const char*, int64_t> device_memory;  // where it begins, and how long it is

bool is_of_device(const float* data) {
  const char* at = reinterpret_cast<const char*>(data);
  const auto next = device_memory.upper_bound(at);
  return next != device_memory.begin() && at < std::prev(next)->first + std::prev(next)->second;
}

struct Model {
  std::string text;
};

thread_local std::string last_error;

std::string scripted(const std::string& name) {
  const char* all = std::getenv("ONW_FAKE_OPENVINO");
  const std::string script = std::string(";") + (all == nullptr ? "" : all) + ";";
  const size_t at = script.find(";" + name + "=");
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size() + 2;
  return script.substr(begin, script.find(';', begin) - begin);
}

int fail(const char* why) {
  last_error = why;
  return -1;
}

// The graph by which onw tries a device: y = x + x.
int small_graph(Request& request) {
  const Tensor &x = request.tensors["x"], &y = request.tensors["y"];
  for (int64_t i = 0; i < std::min(x.elements, y.elements); ++i) y.data[i] = 2 * x.data[i];
  return 0;
}

struct Compiled {
  bool from_cache = false;
};

// What a plugin does with CACHE_DIR: true where the graph was there.
bool use_cache(const std::string& folder, const std::string& text) {
  const std::string how = scripted("cache");
  if (folder.empty() || how == "none") return false;
  const std::string file = folder + "/" + std::to_string(std::hash<std::string>()(text)) + ".blob";
  if (std::ifstream(file).good()) return how != "stale";
  std::ofstream(file, std::ios::binary) << std::string(how == "whole" ? 3'000'000 : 700, 'c');
  return false;
}

constexpr const char* kBlobBegin = "fake compiled graph";

int handle = 0;  // what all objects without a state are

}  // namespace

extern "C" {

struct Version {
  const char* build;
  const char* description;
};
struct List {
  char** names;
  size_t count;
};
struct Dims {
  int64_t rank;
  int64_t* dims;
};

int ov_get_openvino_version(Version* v) {
  static std::string version;
  version = scripted("version").empty() ? "2026.4.1-fake" : scripted("version");
  *v = {version.c_str(), "fake"};
  return 0;
}
void ov_version_free(Version*) {}
const char* ov_get_last_err_msg() { return last_error.c_str(); }
const char* ov_get_error_info(int) { return "GENERAL_ERROR"; }
void ov_free(const char*) {}

int ov_core_create(void** core) {
  *core = &handle;
  return scripted("core") == "fail" ? fail("Exception from src/core.cpp:1: no plugins.xml\n") : 0;
}
void ov_core_free(void*) {}
int ov_core_get_available_devices(const void*, List* list) {
  static char name[] = "NPU";
  static char* names[] = {name};
  *list = {names, 1};
  return 0;
}
void ov_available_devices_free(List*) {}
int ov_core_get_property(const void*, const char*, const char*, char**) { return fail("no such property"); }
int ov_core_set_property(const void*, const char*, ...) { return 0; }
int ov_core_read_model_from_memory_buffer(const void*, const char* text, size_t bytes, const void*, Model** model) {
  *model = new Model{std::string(text, bytes)};
  return 0;
}
int ov_core_compile_model(const void*, const Model* model, const char*, size_t words, Compiled** compiled, ...) {
  ++counts["compiled"];
  texts.insert(model->text);
  counts["distinct"] = static_cast<int64_t>(texts.size());
  std::string folder;
  va_list properties;
  va_start(properties, compiled);
  std::string how = scripted("compile");
  for (size_t i = 0; i + 1 < words; i += 2) {
    const std::string_view name = va_arg(properties, const char*);
    const std::string value = va_arg(properties, const char*);
    if (name == "CACHE_DIR") folder = value;
    if (name == "NPU_COMPILER_TYPE" && !scripted("compile." + value).empty()) how = scripted("compile." + value);
  }
  va_end(properties);
  if (model->text.find(scripted("compile.where")) == std::string::npos) return 0;
  if (const std::string mark = scripted("compile.once"); !mark.empty()) {
    if (std::ifstream(mark).good())
      how.clear();
    else
      std::ofstream(mark) << "tried";
  }
  if (how == "crash") std::abort();
  if (how == "none")
    return fail("Cannot load library \"/srv/some body/npu/libcompiler.so\": no such file in /srv/some body");
  if (how == "kill") std::raise(SIGKILL);
  if (how == "slow") std::this_thread::sleep_for(std::chrono::seconds(5));
  if (how == "oom") return fail("std::bad_alloc");
  if (!scripted("says").empty()) return fail(scripted("says").c_str());
  if (how == "fail") return fail("ZE_RESULT_ERROR: [NPU_VCL] Compiler returned an error");
  *compiled = new Compiled{use_cache(folder, model->text)};
  return 0;
}
void ov_model_free(Model* model) { delete model; }
int ov_model_inputs_size(const void*, size_t* n) { return *n = 6, 0; }
int ov_model_const_input_by_index(const void*, size_t i, void** port) {
  static int ports[8];
  ports[i % 8] = static_cast<int>(i);
  *port = &ports[i % 8];
  return 0;
}
int ov_port_get_element_type(const void* port, int* type) { return *type = *static_cast<const int*>(port), 0; }
void ov_output_const_port_free(void*) {}
void ov_compiled_model_free(Compiled* compiled) { delete compiled; }
int ov_compiled_model_get_property(const Compiled* compiled, const char* name, char** value) {
  static char yes[] = "YES", no[] = "NO";
  if (std::strcmp(name, "LOADED_FROM_CACHE") != 0) return fail("no such property");
  *value = compiled->from_cache ? yes : no;
  return 0;
}
int ov_compiled_model_create_infer_request(const void*, Request** request) {
  counts["most_requests"] = std::max(counts["most_requests"], ++counts["requests"]);
  *request = new Request;
  return 0;
}
int ov_compiled_model_export_model(const void*, const char* path) {
  if (scripted("export") == "fail") return fail("nothing to export");
  const std::string bytes = scripted("export.bytes");
  std::string blob = kBlobBegin;
  blob.resize(bytes.empty() ? 5000 : std::stoul(bytes), '.');
  std::ofstream(path, std::ios::binary) << blob;  // as the real one: a full disk is no error
  return 0;
}
int ov_core_import_model(const void*, const char* blob, size_t bytes, const char*, Compiled** compiled) {
  const bool ours = std::string_view(blob, bytes).starts_with(kBlobBegin);
  const std::string ms = scripted("import.ms");
  if (scripted("import") == "slow")
    std::this_thread::sleep_for(std::chrono::milliseconds(ms.empty() ? 5000 : std::stoi(ms)));
  if (scripted("import") == "fail" || !ours) return fail("blob of another version");
  *compiled = new Compiled;
  return 0;
}
void ov_infer_request_free(Request* request) {
  --counts["requests"];
  delete request;
}
int ov_infer_request_set_tensor(Request* request, const char* name, const Tensor* tensor) {
  ++counts["set"];
  if (!is_of_device(tensor->data)) ++counts["copied"];
  return request->tensors[name] = *tensor, 0;
}
int ov_infer_request_infer(Request* request) {
  ++counts["runs"];
  const std::string from = scripted("infer.from");  // until then all is well
  const bool begun = from.empty() || ++counts["inferred"] >= std::stoll(from);
  const std::string where = scripted("infer.where");
  const bool here =
      std::ranges::any_of(request->tensors, [&](const auto& t) { return t.first.find(where) != std::string::npos; });
  const std::string how = begun && here ? scripted("infer") : "";
  if (how == "lost") return fail("ZE_RESULT_ERROR_DEVICE_LOST");
  if (how == "oom") return fail("ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY");
  if (request->tensors.contains("x") && request->tensors.contains("y")) return small_graph(*request);
  const auto logits = request->tensors.find("logits");
  if (logits == request->tensors.end()) return 0;
  const float value = how == "nan" ? std::numeric_limits<float>::quiet_NaN() : how == "zero" ? 0.0f : 1.0f;
  for (int64_t i = 0; i < logits->second.elements; ++i) logits->second.data[i] = value;
  if (how == "wrong") logits->second.data[1] = 100;
  return 0;
}
int ov_infer_request_start_async(Request* request) { return ov_infer_request_infer(request); }
int ov_infer_request_wait(Request*) { return 0; }
int ov_infer_request_get_profiling_info(const void*, void*) { return fail("no profile"); }
void ov_profiling_info_list_free(void*) {}
int ov_tensor_create_from_host_ptr(int, Dims shape, void* memory, Tensor** tensor) {
  *tensor = new Tensor{static_cast<float*>(memory)};
  for (int64_t i = 0; i < shape.rank; ++i) (*tensor)->elements *= shape.dims[i];
  return 0;
}
int ov_tensor_data(const Tensor* tensor, void** memory) { return *memory = tensor->data, 0; }
void ov_tensor_free(Tensor* tensor) {
  if (tensor->owns) {
    device_memory.erase(reinterpret_cast<const char*>(tensor->data));
    std::free(tensor->data);
  }
  delete tensor;
}

int ov_core_get_default_context(const void*, const char*, void** context) {
  *context = &handle;
  return scripted("context") == "none" ? fail("Level zero backend is not found!") : 0;
}
int ov_remote_context_create_host_tensor(const void*, int, Dims shape, Tensor** tensor) {
  const int64_t bytes = shape.dims[0];
  *tensor = new Tensor{static_cast<float*>(std::malloc(static_cast<size_t>(bytes))), bytes, true};
  device_memory[reinterpret_cast<const char*>((*tensor)->data)] = bytes;
  return 0;
}
void ov_remote_context_free(void*) {}

int64_t fake_openvino_count(const char* name) {
  if (std::strcmp(name, "from_now_on") == 0) counts["most_requests"] = counts["requests"];
  const auto found = counts.find(name);
  return found == counts.end() ? 0 : found->second;
}

}  // extern "C"
