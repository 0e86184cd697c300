#include "runtime/hand_over_sequence.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace onw {
namespace {

// A canonical state on its way.
class CarriedState final : public StateSink, public StateSource {
 public:
  CarriedState(int64_t length, KvFormat kv) : length_(length), kv_(kv) {}
  Result<void> put(std::string_view name, std::span<const std::byte> bytes) override {
    blobs_.insert_or_assign(std::string(name), std::vector<std::byte>(bytes.begin(), bytes.end()));
    return {};
  }
  Result<std::span<const std::byte>> get(std::string_view name) override {
    const auto found = blobs_.find(name);
    if (found == blobs_.end()) return error(Code::internal, "the state has no '{}'", name);
    return std::span<const std::byte>(found->second);
  }
  int64_t length() const override { return length_; }
  KvFormat kv_format() const override { return kv_; }

 private:
  std::map<std::string, std::vector<std::byte>, std::less<>> blobs_;
  int64_t length_;
  KvFormat kv_;
};

// The state of `from`, a sequence of `side`, as a sequence of `to`.
Result<std::unique_ptr<Sequence>> carry(const Sequence& from, const Side& side, const Side& to) {
  CarriedState state(from.length(), side.executable->info().kv);
  RETURN_IF_ERROR(from.export_to(state));
  auto sequence = to.executable->new_sequence();
  RETURN_IF_ERROR(sequence);
  RETURN_IF_ERROR((*sequence)->import_from(state));
  return sequence;
}

}  // namespace

HandOverCheckpoint::HandOverCheckpoint(SidePtr side, CheckpointPtr inner)
    : side_(std::move(side)), inner_(std::move(inner)), length_(inner_->length()) {
  side_->checkpoints.insert(this);
}

HandOverCheckpoint::~HandOverCheckpoint() {
  if (side_ != nullptr) side_->checkpoints.erase(this);
}

void HandOverCheckpoint::expire() {
  side_->checkpoints.erase(this);
  inner_.reset();
  side_.reset();
}

HandOverSequence::HandOverSequence(SidePtr side, std::unique_ptr<Sequence> inner, SidePtr standby)
    : side_(std::move(side)), standby_(std::move(standby)), inner_(std::move(inner)) {
  side_->sequences.insert(this);
}

HandOverSequence::~HandOverSequence() { side_->sequences.erase(this); }

void HandOverSequence::settle_on(const SidePtr& side, std::unique_ptr<Sequence> inner) {
  inner_ = std::move(inner);  // before its target, which may go with the old side
  side_->sequences.erase(this);
  side_ = side;
  side_->sequences.insert(this);
}

Result<void> HandOverSequence::reserve(int64_t tokens) {
  RETURN_IF_ERROR(inner_->reserve(tokens));
  reserved_ = std::max(reserved_, tokens);
  return {};
}

void HandOverSequence::commit(int rows_kept) {
  CHECK(rows_kept >= kept_rows_ && rows_kept <= open_rows_);
  inner_->commit(rows_kept - static_cast<int>(kept_rows_));
  hold(0, 0);
}

int64_t HandOverSequence::truncate(int64_t n) {
  hold(0, 0);
  return inner_->truncate(n);
}

Result<CheckpointPtr> HandOverSequence::checkpoint() {
  auto inner = inner_->checkpoint();
  RETURN_IF_ERROR(inner);
  return std::make_shared<HandOverCheckpoint>(side_, std::move(*inner));
}

Result<void> HandOverSequence::restore(const Checkpoint& checkpoint) {
  const auto* mine = dynamic_cast<const HandOverCheckpoint*>(&checkpoint);
  if (mine == nullptr) return error(Code::invalid_argument, "the checkpoint belongs to another target");
  if (mine->side_ == nullptr)
    return error(Code::not_found, "the state after {} tokens was kept by a device that is gone", mine->length());
  if (mine->side_ == side_) {
    RETURN_IF_ERROR(inner_->restore(*mine->inner_));
  } else {
    auto there = mine->side_->executable->new_sequence();
    RETURN_IF_ERROR(there);
    RETURN_IF_ERROR((*there)->restore(*mine->inner_));
    settle_on(mine->side_, std::move(*there));
  }
  hold(0, 0);
  return {};
}

Result<std::unique_ptr<Sequence>> HandOverSequence::fork(int64_t n) {
  auto inner = inner_->fork(n);
  RETURN_IF_ERROR(inner);
  auto child = std::make_unique<HandOverSequence>(side_, std::move(*inner), standby_);
  child->standby_until_ = standby_until_;
  return child;
}

Result<void> HandOverSequence::export_to(StateSink& sink) const {
  if (side_->executable->info().kv == standby_->executable->info().kv) return inner_->export_to(sink);
  const auto there = carry(*inner_, *side_, *standby_);
  RETURN_IF_ERROR(there);
  return (*there)->export_to(sink);
}

Result<void> HandOverSequence::import_from(StateSource& source) {
  RETURN_IF_ERROR(inner_->import_from(source));
  hold(0, 0);
  return {};
}

Result<void> HandOverSequence::move_to(const SidePtr& side) {
  if (side == side_) return {};
  auto there = carry(*inner_, *side_, *side);
  RETURN_IF_ERROR(there);
  if (reserved_ > 0) RETURN_IF_ERROR((*there)->reserve(reserved_));
  settle_on(side, std::move(*there));
  hold(0, 0);  // a step that moves away counts as kept whole
  return {};
}

}  // namespace onw
