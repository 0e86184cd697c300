#include "targets/openvino/probe.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/child_process.h"
#include "targets/openvino/runtime.h"
#include "targets/openvino/stand_in.h"

namespace onw::openvino {
namespace {

using nlohmann::ordered_json;

constexpr std::array kFacts = {"FULL_DEVICE_NAME", "DEVICE_ARCHITECTURE", "NPU_DRIVER_VERSION", "NPU_COMPILER_VERSION",
                               "NPU_DEVICE_TOTAL_MEM_SIZE"};

// y = x + x, four numbers.
constexpr std::string_view kSmallGraph =
    R"(<?xml version="1.0"?><net name="small" version="11"><layers>)"
    R"(<layer id="0" name="x" type="Parameter" version="opset1"><data shape="1,4" element_type="f32"/><output><port id="0" precision="FP32" names="x"><dim>1</dim><dim>4</dim></port></output></layer>)"
    R"(<layer id="1" name="add" type="Add" version="opset1"><data auto_broadcast="numpy"/><input><port id="0" precision="FP32"><dim>1</dim><dim>4</dim></port><port id="1" precision="FP32"><dim>1</dim><dim>4</dim></port></input>)"
    R"(<output><port id="2" precision="FP32" names="y"><dim>1</dim><dim>4</dim></port></output></layer>)"
    R"(<layer id="2" name="result" type="Result" version="opset1"><input><port id="0" precision="FP32"><dim>1</dim><dim>4</dim></port></input></layer>)"
    R"(</layers><edges><edge from-layer="0" from-port="0" to-layer="1" to-port="0"/><edge from-layer="0" from-port="0" to-layer="1" to-port="1"/>)"
    R"(<edge from-layer="1" from-port="2" to-layer="2" to-port="0"/></edges></net>)";

// The child's last words, without our own prefix.
std::string last_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  if (const size_t at = text.rfind('\n'); at != std::string::npos) text.erase(0, at + 1);
  if (text.starts_with("onw: ")) text.erase(0, 5);
  return text;
}

Result<std::string> ask_child(const ProbeOptions& options, std::vector<std::string> words) {
  words.insert(words.begin(), options.program.begin(), options.program.end());
  auto outcome = run_child(words, options.seconds);
  RETURN_IF_ERROR(outcome);
  if (outcome->succeeded()) return std::move(outcome->output);
  if (outcome->exit_code > 0 && !outcome->errors.empty())
    return error(Code::unsupported, "{}", last_line(std::move(outcome->errors)));
  return error(Code::unsupported,
               "the process that asked OpenVINO {}: a fault of the driver or of the installation. Update the device's "
               "driver, or install OpenVINO anew",
               describe(*outcome, options.seconds));
}

Result<Probe> parse(const std::string& text) {
  const auto json = ordered_json::parse(text, nullptr, false);
  const auto bad = [] { return error(Code::unsupported, "the process that asked OpenVINO gave no answer"); };
  if (json.is_discarded() || !json.is_object() || !json.contains("devices")) return bad();
  Probe p;
  p.version = json.value("version", "");
  for (const auto& device : json["devices"]) {
    if (!device.is_object()) return bad();
    DeviceFacts facts{.name = device.value("name", "")};
    for (const auto& [key, value] : device.items())
      if (key != "name" && value.is_string()) facts.facts.emplace_back(key, value.get<std::string>());
    p.devices.push_back(std::move(facts));
  }
  return p;
}

}  // namespace

Result<std::string> examine(const std::filesystem::path& library) {
  const auto runtime = Runtime::load(library);
  RETURN_IF_ERROR(runtime);
  const auto names = (*runtime)->devices();
  RETURN_IF_ERROR(names);
  ordered_json devices = ordered_json::array();
  for (const std::string& name : *names) {
    ordered_json device = {{"name", name}};
    for (const char* fact : kFacts)
      if (const auto value = (*runtime)->property(name, fact)) device[fact] = *value;
    devices.push_back(std::move(device));
  }
  const ordered_json all = {{"version", (*runtime)->version()}, {"devices", std::move(devices)}};
  return all.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

Result<std::string> run_small_graph(const std::filesystem::path& library, const std::string& device) {
  const auto runtime = Runtime::load(library);
  RETURN_IF_ERROR(runtime);
  const Properties properties = device == "NPU" && stands_in_for_npu() ? stand_in_properties() : Properties();
  const auto compiled = (*runtime)->compile(kSmallGraph, Tensor(), device, properties);
  RETURN_IF_ERROR(compiled);
  auto request = compiled->request();
  RETURN_IF_ERROR(request);
  std::array<float, 4> x = {1, -2, 0.5f, 1024}, y = {};
  const std::array<int64_t, 2> shape = {1, 4};
  for (const auto& [name, memory] : {std::pair("x", x.data()), std::pair("y", y.data())}) {
    const auto tensor = (*runtime)->tensor(DType::f32, shape, memory);
    RETURN_IF_ERROR(tensor);
    RETURN_IF_ERROR(request->set(name, *tensor));
  }
  RETURN_IF_ERROR(request->run());
  if (y != std::array<float, 4>{2, -4, 1, 2048})
    return error(Code::numerics, "{} gives wrong results for a sum of four numbers", device);
  return "ok\n";
}

Result<Probe> probe(const std::filesystem::path& library, const ProbeOptions& options) {
  const auto answer = ask_child(options, {library.string()});
  RETURN_IF_ERROR(answer);
  auto found = parse(*answer);
  RETURN_IF_ERROR(found);
  const bool stands_in = stands_in_for_npu() && std::string_view("NPU").starts_with(options.only);
  if (stands_in && std::ranges::find(found->devices, "NPU", &DeviceFacts::name) == found->devices.end())
    found->devices.push_back({.name = "NPU", .facts = {{"DEVICE_ARCHITECTURE", kStandInArchitecture}}, .trouble = {}});
  std::erase_if(found->devices, [&](const DeviceFacts& device) { return !device.name.starts_with(options.only); });
  for (DeviceFacts& device : found->devices)
    if (const auto ran = ask_child(options, {library.string(), device.name}); !ran)
      device.trouble = ran.error().message;
  return found;
}

std::string device_name(const std::string& name) { return name == "CPU" ? "openvino:CPU" : name; }

std::string openvino_device(const std::string& name) {
  constexpr std::string_view kPrefix = "openvino:";
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
}

}  // namespace onw::openvino
