// Graphs into the store of blobs: those that it lacks are compiled in child processes, several at once.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory_file.h"
#include "targets/executable.h"
#include "targets/openvino/blob_store.h"
#include "targets/openvino/compile_child.h"
#include "targets/openvino/constants.h"
#include "targets/openvino/runtime.h"

namespace onw::openvino {

struct CompileJob {
  std::string segment;  // "body.3", "head", "attention.1024"
  int64_t rows = 1;     // kRows: any number
  std::string_view xml;
  bool is_head = false;
};

struct CompileEvent {
  const CompileJob& job;
  bool ended = false;  // else it has just begun
  bool hit = false;    // it was in the store
  bool waits = false;  // another process is compiling it
  int done = 0, total = 0;
  double seconds = 0;  // of this one
};
using CompileObserver = std::function<void(const CompileEvent&)>;  // called by one thread at a time

struct CompileSetup {
  std::shared_ptr<const Runtime> runtime;
  const Constants* constants = nullptr;  // of all jobs; nothing may be added while they run
  std::string model;                     // for people
  std::string model_folder;              // where it lies
  std::string weights_digest;
  std::string device;                   // OpenVINO's name
  std::string platform;                 // of routes.h
  Properties properties;                // of all jobs; the routes add theirs
  DeviceSettings settings = {};         // for children: the caller's own runtime has them
  std::vector<std::string> child = {};  // what starts a child: {"/usr/bin/onw", "openvino-compile"}
  double seconds = 0;                   // for one graph; 0: the platform's
  int at_once = 0;                      // children; 0: half the cores, as memory allows
  bool again = false;                   // tries anew what did not compile before
  bool must_store = false;              // a disk that takes nothing is an error; else the blob lives in memory
};

// A compiled graph: in the store, or in memory where the disk took nothing.
struct Blob {
  BlobRecord record;
  std::shared_ptr<const MemoryFile> memory = nullptr;
  std::optional<Error> why_not_stored = {};
};

// In the order of the jobs; equal graphs are compiled once. Every route of the platform is tried in turn; how each
// ended is recorded, and not tried again unless there is more time than then; for want of memory up to three times,
// each at a start that has more than the compiler took. Another process that compiles the same is waited for. What is
// known not to load comes back as such (Ended::unloadable). Errors: unsupported with what each route ended with,
// out_of_memory, no_space, io, cancelled.
Result<std::vector<Blob>> compile_all(std::span<const CompileJob> jobs, const CompileSetup& setup,
                                      const BlobStore& store, const CompileObserver& observer,
                                      const CancelToken& cancel);

// The graph of the job. Errors: digest_mismatch, not_found, unsupported: compile it anew (store.remove, compile_all).
Result<CompiledModel> load_blob(const CompileJob& job, const Blob& blob, const CompileSetup& setup,
                                const BlobStore& store);

}  // namespace onw::openvino
