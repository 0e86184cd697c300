#include "cli/doctor_openvino.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/child_process.h"
#include "base/paths.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "targets/openvino/find.h"
#include "targets/openvino/stand_in.h"

namespace onw::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kWrongFolder =
    "ONW_OPENVINO_DIR leads to no libopenvino_c.so: name the folder that holds it, or unset it";

std::string fact(const openvino::DeviceFacts& device, std::string_view name) {
  for (const auto& [key, value] : device.facts)
    if (key == name) return value;
  return "";
}

std::string device_text(const openvino::DeviceFacts& device) {
  std::string text = fact(device, "FULL_DEVICE_NAME");
  if (const auto driver = fact(device, "NPU_DRIVER_VERSION"); !driver.empty())
    text += fmt::format("{}driver {}", text.empty() ? "" : ", ", driver);
  return fmt::format("{}{}{}", text, text.empty() ? "" : "; ",
                     device.trouble.empty() ? "a small graph runs" : "no graph runs, see below");
}

// What others say, such as "Cannot load library /x/y/libz.so", without the folders: "libz.so". Folders may hold spaces,
// so that a path in quotes ends at the quote, and another one at ": " or the end of the line: rather too much goes.
std::string without_folders(std::string_view text) {
  constexpr std::string_view kQuotes = "'\"`", kBefore = " \t\n'\"`,;:([<=";
  std::string out;
  while (!text.empty()) {
    size_t begin = text.find('/');
    while (begin != text.npos && begin > 0 && kBefore.find(text[begin - 1]) == text.npos)
      begin = text.find('/', begin + 1);
    out += text.substr(0, begin);
    if (begin == text.npos) break;
    const bool quoted = begin > 0 && kQuotes.find(text[begin - 1]) != text.npos;
    const size_t end =
        quoted ? text.find(text[begin - 1], begin) : std::min(text.find(": ", begin), text.find('\n', begin));
    const std::string_view path = text.substr(begin, end - begin);
    out += path.substr(path.rfind('/') + 1);
    text = end == text.npos ? std::string_view() : text.substr(end);
  }
  return out;
}

// The folders that a report could name by what others say: their own names may hold whatever ends a path elsewhere.
std::vector<std::string> known_folders(const OpenVinoFindings& f) {
  std::vector<std::string> folders = {home_folder().string(), cache_folder().string(),
                                      std::filesystem::path(f.library).parent_path().string()};
  for (const char* variable : {"HOME", "ONW_OPENVINO_DIR", "PWD", "TMPDIR"})
    if (const char* value = std::getenv(variable)) folders.emplace_back(value);
  for (const std::string& folder : std::vector<std::string>(folders)) {
    std::error_code failure;
    folders.push_back(std::filesystem::weakly_canonical(folder, failure).string());
  }
  std::erase_if(folders, [](const std::string& folder) { return folder.size() < 2; });
  std::ranges::sort(folders, std::ranges::greater(), &std::string::size);
  return folders;
}

// For a report, which others will read.
std::string for_report(std::string text, const OpenVinoFindings& f) {
  for (const std::string& folder : known_folders(f))
    for (size_t at = text.find(folder); at != text.npos; at = text.find(folder, at)) text.erase(at, folder.size());
  return without_folders(text);
}

// OpenVINO's NPU runs a graph: whatever the machine's files say, nothing stands in its way.
bool npu_works(const OpenVinoFindings& f) {
  return std::ranges::any_of(f.probe.devices, [](const auto& d) { return d.name == "NPU" && d.trouble.empty(); });
}

std::string npu_row(const OpenVinoFindings& f) {
  if (openvino::stands_in_for_npu()) return "OpenVINO's CPU device in its place (ONW_NPU_STAND_IN)";
  if (!npu_works(f)) return openvino::npu_text(f.npu);
  return f.npu.name.empty() ? "as OpenVINO shows it, see below" : f.npu.name + "; works";
}

// A variable that asks for what there is not.
std::string variable_advice(const OpenVinoFindings& f) {
  if (const auto stand_in = openvino::npu_stand_in(); !stand_in) return stand_in.error().message;
  const char* variable = std::getenv("ONW_DEVICE");
  if (variable == nullptr || *variable == '\0') return "";
  const auto device = choice_of("--device", "chat", variable);
  if (!device)
    return fmt::format("ONW_DEVICE: {}. Until then chat, serve, bench and eval fail",
                       printable(device.error().message));
  if (*device != "NPU" || npu_works(f)) return "";
  return "ONW_DEVICE is NPU, and no NPU works here: chat, serve, bench and eval fail. Unset it, or set it to CPU";
}

bool missing_is_a_fault(const OpenVinoFindings& f) { return !f.found() && (f.asked_for || !f.npu.name.empty()); }

}  // namespace

OpenVinoFindings examine_openvino() {
  OpenVinoFindings f;
  const char* given = std::getenv("ONW_OPENVINO_DIR");
  f.asked_for = given != nullptr && *given != '\0';
  f.npu = openvino::look_at_npu();
  const auto library = openvino::find_library(openvino::search_places());
  if (!library) {
    f.trouble = library.error().message;
    return f;
  }
  f.library = library->string();
  auto probed = openvino::probe(*library, {.program = {this_program().string(), std::string(openvino::kProbeCommand)}});
  if (probed)
    f.probe = std::move(*probed);
  else
    f.trouble = probed.error().message;
  return f;
}

std::vector<std::vector<std::string>> openvino_rows(const OpenVinoFindings& f, bool with_paths) {
  const std::vector<std::string> npu = {"NPU", npu_row(f)};
  // What to do about it is said once: below, where the machine wants it, else here.
  if (!f.found()) return {npu, {"OpenVINO", missing_is_a_fault(f) ? "not found, see below" : f.trouble}};
  const std::string version = f.probe.version.empty() ? "does not start, see below" : f.probe.version;
  std::vector<std::vector<std::string>> rows = {
      npu, {"OpenVINO", with_paths ? fmt::format("{}, {}", version, f.library) : version}};
  for (const auto& device : f.probe.devices)
    rows.push_back({fmt::format("  {}", openvino::device_name(device.name)), device_text(device)});
  return rows;
}

std::vector<std::string> openvino_advice(const OpenVinoFindings& f, bool with_paths) {
  std::vector<std::string> advice;
  if (std::string wrong = variable_advice(f); !wrong.empty())
    advice.push_back(with_paths ? std::move(wrong) : for_report(std::move(wrong), f));
  if (std::string npu = openvino::npu_advice(f.npu); !npu.empty() && !npu_works(f)) advice.push_back(std::move(npu));
  if (!f.found() && f.asked_for)
    advice.push_back(with_paths ? f.trouble : fmt::format("OpenVINO: {}", kWrongFolder));
  else if (missing_is_a_fault(f))
    advice.push_back(
        "OpenVINO is missing, without which the NPU does nothing: pip install openvino, or see "
        "ONW_OPENVINO_DIR");
  if (f.found() && !f.trouble.empty())
    advice.push_back("OpenVINO: " + (with_paths ? f.trouble : "is there, but does not start: onw doctor says why"));
  for (const auto& device : f.probe.devices)
    if (!device.trouble.empty())
      advice.push_back(fmt::format("OpenVINO's device {}: {}", device.name,
                                   with_paths ? device.trouble : for_report(device.trouble, f)));
  return advice;
}

ordered_json openvino_json(const OpenVinoFindings& f) {
  const auto text = [](const std::string& s) { return s.empty() ? ordered_json() : ordered_json(s); };
  ordered_json devices = ordered_json::array();
  for (const auto& device : f.probe.devices) {
    ordered_json entry = {{"name", openvino::device_name(device.name)}, {"trouble", text(device.trouble)}};
    for (const auto& [key, value] : device.facts) entry[key] = value;
    devices.push_back(std::move(entry));
  }
  return {{"npu",
           {{"name", text(f.npu.name)},
            {"kernel_module", text(f.npu.module)},
            {"device", text(f.npu.device)},
            {"device_opens", f.npu.device_opens},
            {"driver", f.npu.has_driver},
            {"loader", f.npu.has_loader},
            {"wsl", f.npu.is_wsl}}},
          {"library", text(f.library)},
          {"version", text(f.probe.version)},
          {"trouble", text(f.trouble)},
          {"devices", std::move(devices)}};
}

}  // namespace onw::cli
