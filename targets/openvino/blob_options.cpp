#include "targets/openvino/blob_options.h"

namespace onw::openvino {

std::string describe(const BlobUse& use) {
  const auto of_all = [&](int n) { return fmt::format("{} of {} compiled graphs", n, use.records.size()); };
  std::string text;
  if (use.why_unkept)
    text = fmt::format("{} are not kept ({}): the next start compiles them again. {}", of_all(use.unkept),
                       use.why_unkept->message, store_remedy(use.why_unkept->code));
  if (use.unloadable > 0)
    text += fmt::format("{}{} do not load ({}) and are compiled at each start. Update the device's driver and OpenVINO",
                        text.empty() ? "" : ". ", of_all(use.unloadable), use.why_unloadable);
  else if (use.remade > 0)
    text += fmt::format("{}{} did not load ({}) and were compiled again", text.empty() ? "" : ". ", of_all(use.remade),
                        use.why_remade);
  return text;
}

}  // namespace onw::openvino
