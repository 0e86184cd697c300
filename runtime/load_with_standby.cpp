#include "runtime/load_with_standby.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "runtime/compile_ahead.h"
#include "runtime/hand_over.h"
#include "runtime/load.h"
#include "runtime/self_check.h"
#include "store/model_folder.h"
#include "store/runs_on.h"
#include "targets/openvino/platforms.h"

namespace onw {
namespace {

// The verdict of the device's graphs: of those that run now.
KeptCheck kept_check(const openvino::BlobUse& use) {
  std::vector<std::string> keys;
  for (const openvino::BlobRecord& record : use.records) keys.push_back(record.key);
  return KeptCheck(blob_store(), std::move(keys));
}

// Whether the device computes with the formats of the model as they are: known before anything is made.
Result<void> check_takes(const std::filesystem::path& model_folder, const DeviceChoice& choice) {
  const auto model = open_model(model_folder);
  RETURN_IF_ERROR(model);
  const openvino::Platform* platform = openvino::find_platform(choice.platform);
  CHECK(platform != nullptr);
  std::vector<WeightFormat> formats;  // experts are computed by the host
  for (const WeightDecl& w : model->program.weights)
    if (w.role != WeightRole::vector && w.role != WeightRole::expert) formats.push_back(w.format);
  const std::vector<std::string> takes = runs_on(formats);
  if (std::ranges::find(takes, platform->formats) != takes.end()) return {};
  return error(Code::unsupported,
               "the {} ({}) does not compute with a weight format of this model, which runs on {}. Convert it anew: "
               "onw convert SRC OUT --for npu. --device CPU takes it as it is",
               choice.device, choice.platform, fmt::join(takes, ", "));
}

// What becomes of graphs with attention inside: of those that cannot be had the first is told.
std::function<void(const FusedNews&)> reporter(const std::shared_ptr<DeviceStatus>& status, const std::string& device) {
  const auto told = std::make_shared<std::atomic<bool>>(false);
  return [=](const FusedNews& news) {
    if (news.what == FusedNews::What::loaded)
      status->change([&](DeviceReport& r) { r.fused_tokens = std::max(r.fused_tokens, news.length); });
    if (news.what == FusedNews::What::failed && !told->exchange(true))
      status->tell_when_ready(
          fmt::format("The {} answers with attention between its graphs, which takes longer: with attention "
                      "inside, for {} rows and {} tokens: {}. --fused no does not try",
                      device, news.rows, news.length, news.why));
  };
}

Result<std::unique_ptr<Executable>> load_standby(const std::filesystem::path& model_folder,
                                                 const EngineOptions& options) {
  return load_executable(
      model_folder, {.device = "CPU", .kv = options.kv, .threads = options.threads, .observer = options.load_observer});
}

}  // namespace

Result<std::unique_ptr<Engine>> load_with_standby(const std::filesystem::path& model_folder,
                                                  const EngineOptions& options, const DeviceChoice& choice,
                                                  bool insisted) {
  const auto taken = check_takes(model_folder, choice);
  if (!taken && insisted) return Failure(taken.error());
  auto standby = load_standby(model_folder, options);
  RETURN_IF_ERROR(standby);
  if (!taken) {
    EngineOptions alone = options;
    alone.device = "CPU";
    alone.device_reason = taken.error().message;
    return Engine::create(std::move(*standby), alone);
  }
  const auto status = std::make_shared<DeviceStatus>(options.notice);
  const auto used = std::make_shared<std::shared_ptr<openvino::BlobUse>>();  // the maker's, then the check's
  const DeviceMaker maker = [=, kv = options.kv, fused = options.fused,
                             threads = options.threads](const Making& making) -> Result<std::unique_ptr<Executable>> {
    const auto goes_on = [progress = making.progress](int64_t, int64_t) { return progress(0, 0); };
    return load_executable(model_folder,
                           {.device = choice.device,
                            .kv = kv,
                            .threads = threads,
                            .observer = goes_on,
                            .on_compiled = making.progress,
                            .cancel = making.cancel,
                            .fused = fused,
                            .on_fused = reporter(status, choice.device),
                            .with_blobs = [used](openvino::BlobOptions& blobs) { *used = blobs.use; },
                            .notice = [status](const std::string& text) { status->tell(text); }},
                           choice);
  };
  const auto check = [used, name = choice.device](Executable& device, Executable& cpu, const CancelToken& cancel) {
    return check_once(kept_check(**used), device, cpu, name, cancel);
  };
  auto pair = make_hand_over(std::move(*standby), maker,
                             {.device = choice.device,
                              .insisted = insisted,
                              .asked_by = options.device_chosen_by,
                              .check = check,
                              .status = status,
                              .speeds = {.read = [used] { return kept_check(**used).speeds(); },
                                         .write = [used](const Speeds& s) { kept_check(**used).note_speeds(s); }}});
  return Engine::create(std::move(pair), options, status);
}

}  // namespace onw
