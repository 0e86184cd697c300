#include "targets/openvino/runtime.h"

#include <algorithm>
#include <charconv>

#include "targets/openvino/find.h"

namespace onw::openvino {
namespace {

constexpr std::pair<int, int> kOldestRelease = {2025, 0};
constexpr size_t kMostProperties = 16;

// In the order of Runtime::element_types_, with their names in OpenVINO's text.
constexpr std::array<std::pair<DType, std::string_view>, 6> kDTypes = {{{DType::f32, "f32"},
                                                                        {DType::f16, "f16"},
                                                                        {DType::i8, "i8"},
                                                                        {DType::u8, "u8"},
                                                                        {DType::i4, "i4"},
                                                                        {DType::i32, "i32"}}};

// A text that the library allocated.
std::string take_text(const Functions& f, char* text) {
  std::string taken = text == nullptr ? "" : text;
  if (text != nullptr) f.free(text);
  return taken;
}

// As ports of a model's text name a type: "FP32", "I8".
std::string port_precision(std::string_view type) {
  if (type.starts_with('f')) return fmt::format("FP{}", type.substr(1));
  return fmt::format("{}{}", static_cast<char>(type.front() - 'a' + 'A'), type.substr(1));
}

// A model that does nothing but have an input of each type.
std::string types_model() {
  std::string layers, edges;
  for (size_t i = 0; i < kDTypes.size(); ++i) {
    const std::string_view type = kDTypes[i].second;
    layers += fmt::format(
        R"(<layer id="{0}" name="p{0}" type="Parameter" version="opset1"><data shape="1" element_type="{1}"/><output><port id="0" precision="{3}"><dim>1</dim></port></output></layer>)"
        R"(<layer id="{2}" name="r{0}" type="Result" version="opset1"><input><port id="0" precision="{3}"><dim>1</dim></port></input></layer>)",
        i, type, kDTypes.size() + i, port_precision(type));
    edges += fmt::format(R"(<edge from-layer="{}" from-port="0" to-layer="{}" to-port="0"/>)", i, kDTypes.size() + i);
  }
  return fmt::format(
      R"(<?xml version="1.0"?><net name="types" version="11"><layers>{}</layers><edges>{}</edges></net>)", layers,
      edges);
}

// The library's messages, without line breaks and the places in its sources, which help nobody here.
std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const bool space = c == '\n' || c == '\r' || c == '\t' || c == ' ';
    if (!space)
      line += c;
    else if (!line.empty() && line.back() != ' ')
      line += ' ';
  }
  while (line.ends_with(' ')) line.pop_back();
  constexpr std::string_view kPlace = "Exception from ";
  for (size_t at = line.find(kPlace); at != std::string::npos; at = line.find(kPlace, at)) {
    const size_t end = line.find(": ", at);
    if (end == std::string::npos) break;
    line.erase(at, end + 2 - at);
  }
  return line;
}

}  // namespace

std::pair<int, int> release_of(std::string_view version) {
  std::pair<int, int> release = {0, 0};
  const char* end = version.data() + version.size();
  const auto year = std::from_chars(version.data(), end, release.first);
  if (year.ec != std::errc() || year.ptr == end || *year.ptr != '.') return {0, 0};
  if (std::from_chars(year.ptr + 1, end, release.second).ec != std::errc()) return {0, 0};
  return release;
}

Failure Runtime::failed(Status status, std::string_view what) const {
  const char* text = functions_.last_error == nullptr ? nullptr : functions_.last_error();
  if (text == nullptr || *text == '\0') text = functions_.status_text(status);
  return error(Code::internal, "OpenVINO {}: {}: {}", version_, what,
               text == nullptr ? fmt::format("status {}", status) : one_line(text));
}

Result<std::shared_ptr<const Runtime>> Runtime::load(const std::filesystem::path& path) {
  const auto runtime = std::make_shared<Runtime>();
  auto functions = load_functions(path);
  RETURN_IF_ERROR(functions);
  runtime->functions_ = *functions;
  runtime->library_ = path;
  const Functions& f = runtime->functions_;
  ov_version version{};
  if (const Status s = f.get_version(&version); s != 0) return runtime->failed(s, "asking for its version");
  runtime->version_ = version.build == nullptr ? "" : version.build;
  f.version_free(&version);
  if (release_of(runtime->version_) < kOldestRelease)
    return error(Code::unsupported, "{}: this is OpenVINO {}, onw needs {} or later. {}", path.string(),
                 runtime->version_, kOldestVersion, kHowToGet);
  ov_core* core = nullptr;
  if (const Status s = f.core_create(&core); s != 0) return runtime->failed(s, "starting it");
  runtime->core_ = {core, f.core_free};
  RETURN_IF_ERROR(runtime->ask_element_types());
  return std::shared_ptr<const Runtime>(runtime);
}

Result<void> Runtime::ask_element_types() {
  const std::string xml = types_model();
  ov_model* read = nullptr;
  if (const Status s = functions_.read_model(core_.get(), xml.data(), xml.size(), nullptr, &read); s != 0)
    return failed(s, "reading a model");
  const std::shared_ptr<ov_model> model(read, functions_.model_free);
  for (size_t i = 0; i < kDTypes.size(); ++i) {
    ov_port* input = nullptr;
    if (const Status s = functions_.model_input(model.get(), i, &input); s != 0) return failed(s, "reading a model");
    const std::shared_ptr<ov_port> port(input, functions_.port_free);
    if (const Status s = functions_.port_element_type(port.get(), &element_types_[i]); s != 0)
      return failed(s, "reading a model");
  }
  return {};
}

Result<std::vector<std::string>> Runtime::devices() const {
  ov_device_list list{};
  if (const Status s = functions_.available_devices(core_.get(), &list); s != 0)
    return failed(s, "listing its devices");
  std::vector<std::string> names(list.names, list.names + list.count);
  functions_.device_list_free(&list);
  return names;
}

Result<std::string> Runtime::property(const std::string& device, const std::string& name) const {
  char* value = nullptr;
  if (const Status s = functions_.get_property(core_.get(), device.c_str(), name.c_str(), &value); s != 0)
    return failed(s, fmt::format("property {} of {}", name, device));
  return take_text(functions_, value);
}

Result<void> Runtime::set_property(const std::string& device, const std::string& name, const std::string& value) const {
  if (const Status s = functions_.set_property(core_.get(), device.c_str(), name.c_str(), value.c_str()); s != 0)
    return failed(s, fmt::format("property {} of {} as {}", name, device, value));
  return {};
}

Result<CompiledModel> Runtime::compile(std::string_view xml, const Tensor& weights, const std::string& device,
                                       const Properties& properties) const {
  CHECK(properties.size() <= kMostProperties);
  ov_model* read = nullptr;
  if (const Status s = functions_.read_model(core_.get(), xml.data(), xml.size(), weights.get(), &read); s != 0)
    return failed(s, "reading a model");
  const std::shared_ptr<ov_model> model(read, functions_.model_free);
  std::array<const char*, 2 * kMostProperties> words{};  // what lies beyond the given number is not looked at
  for (size_t i = 0; i < properties.size(); ++i) {
    words[2 * i] = properties[i].first.c_str();
    words[2 * i + 1] = properties[i].second.c_str();
  }
  ov_compiled_model* handle = nullptr;
  const Status s = [&]<size_t... i>(std::index_sequence<i...>) {
    return functions_.compile(core_.get(), model.get(), device.c_str(), 2 * properties.size(), &handle, words[i]...);
  }(std::make_index_sequence<2 * kMostProperties>());
  if (s != 0) {
    Failure failure = failed(s, fmt::format("compiling for {}", device));
    failure.value().code = Code::unsupported;
    return failure;
  }
  CompiledModel compiled;
  compiled.runtime_ = shared_from_this();
  compiled.handle_ = {handle, functions_.compiled_free};
  return compiled;
}

Result<CompiledModel> Runtime::import(std::span<const std::byte> blob, const std::string& device,
                                      std::shared_ptr<const void> owner) const {
  ov_compiled_model* handle = nullptr;
  const Status s = functions_.import_blob(core_.get(), reinterpret_cast<const char*>(blob.data()), blob.size(),
                                          device.c_str(), &handle);
  if (s != 0) {
    Failure failure = failed(s, fmt::format("importing a compiled graph for {}", device));
    failure.value().code = Code::unsupported;
    return failure;
  }
  CompiledModel compiled;
  compiled.runtime_ = shared_from_this();
  compiled.handle_ = {handle, [owner = std::move(owner), free = functions_.compiled_free](ov_compiled_model* model) {
                        free(model);  // before what it reads
                      }};
  return compiled;
}

Result<Tensor> Runtime::tensor(DType dtype, std::span<const int64_t> shape, void* memory) const {
  const auto found = std::ranges::find(kDTypes, dtype, &std::pair<DType, std::string_view>::first);
  CHECK(found != kDTypes.end());
  std::vector<int64_t> dims(shape.begin(), shape.end());
  ov_tensor* handle = nullptr;
  const Status s = functions_.tensor_from_memory(element_types_[static_cast<size_t>(found - kDTypes.begin())],
                                                 {static_cast<int64_t>(dims.size()), dims.data()}, memory, &handle);
  if (s != 0) return failed(s, fmt::format("a tensor {}{}", found->second, to_string(dims)));
  Tensor tensor;
  tensor.handle_ = {handle, functions_.tensor_free};
  return tensor;
}

Result<RemoteContext> Runtime::remote_context(const std::string& device) const {
  const Functions& f = functions_;
  if (f.default_context == nullptr || f.create_host_tensor == nullptr || f.context_free == nullptr)
    return error(Code::unsupported, "OpenVINO {} has no remote contexts", version_);
  ov_remote_context* handle = nullptr;
  if (const Status s = f.default_context(core_.get(), device.c_str(), &handle); s != 0)
    return failed(s, fmt::format("the context of {}", device));
  RemoteContext context;
  context.handle_ = {handle, f.context_free};
  return context;
}

Result<std::shared_ptr<std::byte>> Runtime::host_tensor(const RemoteContext& context, int64_t bytes) const {
  const auto u8 = std::ranges::find(kDTypes, DType::u8, &std::pair<DType, std::string_view>::first);
  int64_t dims[] = {bytes};
  ov_tensor* handle = nullptr;
  if (const Status s = functions_.create_host_tensor(
          context.handle_.get(), element_types_[static_cast<size_t>(u8 - kDTypes.begin())], {1, dims}, &handle);
      s != 0)
    return failed(s, fmt::format("{} bytes of the device's memory", bytes));
  std::shared_ptr<ov_tensor> tensor(handle, functions_.tensor_free);
  void* memory = nullptr;
  if (const Status s = functions_.tensor_data(handle, &memory); s != 0) return failed(s, "the device's memory");
  // The tensor lives as long as its memory is held, the context and the library as long as the tensor.
  return std::shared_ptr<std::byte>(static_cast<std::byte*>(memory),
                                    [tensor, context = context, runtime = shared_from_this()](std::byte*) mutable {
                                      tensor.reset();
                                      context = {};
                                      runtime.reset();
                                    });
}

Result<Request> CompiledModel::request() const {
  ov_infer_request* handle = nullptr;
  if (const Status s = runtime_->functions().create_request(handle_.get(), &handle); s != 0)
    return runtime_->failed(s, "an inference request");
  Request request;
  request.runtime_ = runtime_;
  request.handle_ = {handle, [compiled = handle_, free = runtime_->functions().request_free](ov_infer_request* r) {
                       free(r);  // before the model that it runs in
                     }};
  return request;
}

Result<std::string> CompiledModel::property(const std::string& name) const {
  char* value = nullptr;
  if (const Status s = runtime_->functions().compiled_property(handle_.get(), name.c_str(), &value); s != 0)
    return runtime_->failed(s, fmt::format("property {} of a compiled model", name));
  return take_text(runtime_->functions(), value);
}

Result<void> CompiledModel::export_to(const std::filesystem::path& path) const {
  if (const Status s = runtime_->functions().export_blob(handle_.get(), path.c_str()); s != 0) {
    Failure failure = runtime_->failed(s, "exporting a compiled graph");
    failure.value().code = Code::unsupported;
    return failure;
  }
  return {};
}

Result<void> Request::set(const std::string& name, const Tensor& tensor) {
  const Status s = runtime_->functions().set_tensor(handle_.get(), name.c_str(), tensor.get());
  if (s != 0) return runtime_->failed(s, fmt::format("tensor '{}'", name));
  return {};
}

Result<void> Request::run() {
  if (const Status s = runtime_->functions().infer(handle_.get()); s != 0) return runtime_->failed(s, "running");
  return {};
}

Result<void> Request::start() {
  if (const Status s = runtime_->functions().start_async(handle_.get()); s != 0)
    return runtime_->failed(s, "beginning to run");
  return {};
}

Result<void> Request::wait() {
  if (const Status s = runtime_->functions().wait(handle_.get()); s != 0) return runtime_->failed(s, "running");
  return {};
}

Result<std::vector<ProfileEntry>> Request::profile() const {
  ov_profile_list list{};
  if (const Status s = runtime_->functions().profile(handle_.get(), &list); s != 0)
    return runtime_->failed(s, "the profile");
  std::vector<ProfileEntry> entries;
  constexpr int kExecuted = 2;
  for (const ov_profile_entry& e : std::span(list.entries, list.count))
    if (e.status == kExecuted) entries.push_back({e.name, e.kind, e.implementation, e.real_microseconds});
  runtime_->functions().profile_free(&list);
  return entries;
}

}  // namespace onw::openvino
