// Rows side by side: what a layer reads that takes two inputs.
#include "targets/cpu/steps.h"

namespace onw::cpu {
namespace {

class Concat final : public PlanStep {
 public:
  Concat(std::string label, std::vector<Slot> parts, const Slot& y)
      : PlanStep(std::move(label)), parts_(std::move(parts)), y_(y) {}

  void run(const RunContext& c) override {
    c.pool->parallel_for(c.rows, [&](int64_t first, int64_t last, int) {
      for (int64_t r = first; r < last; ++r) {
        float* to = y_.f32(c) + r * y_.stride;
        for (const Slot& x : parts_) to = std::copy_n(x.f32(c) + r * x.stride, x.width, to);
      }
    });
  }

 private:
  std::vector<Slot> parts_;
  Slot y_;
};

}  // namespace

StepPtr make_concat(std::string label, std::vector<Slot> parts, const Slot& y) {
  return std::make_unique<Concat>(std::move(label), std::move(parts), y);
}

}  // namespace onw::cpu
