// That and how a target keeps its compiled graphs in a store.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "targets/executable.h"
#include "targets/openvino/compile_jobs.h"

namespace onw::openvino {

struct BlobOptions {
  std::filesystem::path folder;    // of the store
  std::vector<std::string> child;  // what starts a process that compiles: {"/usr/bin/onw", "openvino-compile"}
  std::string model;               // for people
  std::string weights_digest;      // of the model's weights
  std::string platform;            // of routes.h: "4000", "GPU", "CPU"
  DeviceSettings settings = {};    // for the processes that compile
  double seconds = 0;              // for one graph; 0: the platform's
  bool again = false;              // tries anew what did not compile before
  bool must_store = false;         // a disk that takes nothing is an error
  CompileObserver observer = {};
  std::shared_ptr<CancelToken> cancel = nullptr;
};

}  // namespace onw::openvino
