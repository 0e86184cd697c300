// The weights of a model folder in the layout that a target reads: mapped from the folder where they are so, else from
// the cache store, which makes them once.
#pragma once

#include <functional>
#include <memory>

#include "graph/program.h"
#include "store/cache_store.h"
#include "store/model_folder.h"
#include "targets/weights.h"

namespace onw {

// Bytes done of bytes in all, while weights are laid out anew; false stops. Not called where nothing is to do.
using RelayObserver = std::function<bool(int64_t done, int64_t total)>;

// Every matrix of the Program in `layout` (a table that only the host looks up and experts stay as they are). Weights
// that lie side by side in the folder do so in the cache too. Memory is bounded by some megabytes and the largest
// weight's scales. Errors: missing_tensor, cancelled, those of CacheStore::weights.
Result<WeightSet> weights_in_layout(std::shared_ptr<const ModelFolder> folder, const Program& program, Layout layout,
                                    const CacheStore& cache, const RelayObserver& observer = {});

}  // namespace onw
