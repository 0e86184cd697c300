// An observer that hands on what it sees, and adds up its time.
#pragma once

#include "targets/op_observer.h"

namespace onw {

class Timed final : public OpObserver {
 public:
  explicit Timed(OpObserver* to) : to_(to) {}
  void seen(const SeenOp& op) override {
    seconds += op.seconds;
    to_->seen(op);
  }
  double seconds = 0;

 private:
  OpObserver* to_;
};

}  // namespace onw
