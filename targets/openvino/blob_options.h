// That and how a target keeps its compiled graphs in a store.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "targets/executable.h"
#include "targets/openvino/compile_jobs.h"

namespace onw::openvino {

// What became of a target's graphs while it was made: told once, however many of them it concerns.
struct BlobUse {
  std::vector<BlobRecord> records;  // of the graphs that are loaded, kept or not
  int unkept = 0;                   // graphs that the store did not take
  std::optional<Error> why_unkept;
  int remade = 0;  // whose blobs did not load, and were compiled anew
  std::string why_remade;
  int unloadable = 0;  // whose blobs did not load even then: compiled in this process, at each start
  std::string why_unloadable;
};

struct BlobOptions {
  std::filesystem::path folder;    // of the store
  std::vector<std::string> child;  // what starts a process that compiles: {"/usr/bin/onw", "openvino-compile"}
  std::string model;               // for people
  std::string model_folder;        // where it lies: its blobs are of no use without it
  std::string weights_digest;      // of the model's weights
  std::string platform;            // of routes.h: "4000", "GPU", "CPU"
  DeviceSettings settings = {};    // for the processes that compile
  double seconds = 0;              // for one graph; 0: the platform's
  bool again = false;              // tries anew what did not compile before
  bool must_store = false;         // a disk that takes nothing is an error, and so is a blob that does not load
  CompileObserver observer = {};
  std::shared_ptr<CancelToken> cancel = nullptr;
  std::shared_ptr<BlobUse> use = nullptr;  // filled while the target is made
};

// What people should know of it, in at most two sentences; empty where all is well.
std::string describe(const BlobUse& use);

}  // namespace onw::openvino
