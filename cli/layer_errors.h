// How far two targets drift apart, layer by layer: what a layer hands on, compared row by row.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "targets/op_observer.h"

namespace onw::cli {

// Keeps what each layer of a step hands on: its last FP32 result as wide as the model.
class LayerTap final : public OpObserver {
 public:
  explicit LayerTap(int64_t hidden) : hidden_(hidden) {}

  void clear() { layers_.clear(); }
  void seen(const SeenOp& op) override;

  struct Layer {
    std::string name;           // "L07"
    std::vector<float> values;  // [rows, hidden]
  };
  const std::vector<Layer>& layers() const { return layers_; }

 private:
  int64_t hidden_;
  std::vector<Layer> layers_;
};

struct LayerError {
  std::string layer;
  double relative_rms = 0;  // of the difference, against the RMS of the reference
};

class LayerErrors {
 public:
  // One step of both. Errors: internal where the targets' layers are not the same.
  Result<void> add(const LayerTap& ours, const LayerTap& reference);
  // The `count` worst, worst first.
  std::vector<LayerError> worst(size_t count) const;

 private:
  struct Sum {
    std::string layer;
    double difference = 0, reference = 0;
  };
  std::vector<Sum> sums_;
};

}  // namespace onw::cli
