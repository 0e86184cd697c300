#include "runtime/hand_over.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/background_make.h"
#include "runtime/hand_over_sequence.h"
#include "targets/check_step.h"

namespace onw {
namespace {

constexpr int kMostPartialRows = 16;          // that are promised to be kept in part, whatever the device is
constexpr int64_t kStandbyTokens = 256;       // that a sequence stays with the standby after the device erred on it
constexpr int64_t kMostWrongSteps = 16;       // a device that errs more often is given up
constexpr int64_t kStepsToTrustAgain = 1000;  // after which a lost device is made anew once more
// How long a device that wants a rest waits for the answers under way to end. Chosen: far longer than graphs take to be
// loaded, so that the CPU answers for it a small part of the time.
constexpr double kMostSecondsWithoutRest = 30;
constexpr std::string_view kOfPrompts = " of a prompt";

bool is_the_callers(Code code) {
  return code == Code::cancelled || code == Code::invalid_argument || code == Code::context_overflow;
}

// The rows of a step that one side computes at once.
struct Part {
  SidePtr side;
  std::vector<size_t> sequences;  // of the step, ascending
};

// What a part gave, kept while others run.
struct PartOutputs {
  std::vector<float> logits, hidden;

  void keep(const Outputs& out) {
    logits.insert(logits.end(), out.logits.begin(), out.logits.end());
    hidden.insert(hidden.end(), out.hidden.begin(), out.hidden.end());
  }
  void clear() {
    logits.clear();
    hidden.clear();
  }
};

class TwoSides final : public HandOver {
 public:
  TwoSides(std::unique_ptr<Executable> standby, DeviceMaker maker, HandOverOptions options)
      : options_(std::move(options)),
        standby_(std::make_shared<Side>()),
        status_(options_.status != nullptr ? options_.status : std::make_shared<DeviceStatus>()),
        make_(std::move(maker), status_) {
    standby_->name = "CPU";
    standby_->executable = std::move(standby);
    info_ = standby_->executable->info();
    info_.max_partial_rows = std::min(info_.max_partial_rows, kMostPartialRows);
    if (!info_.hardware.empty()) info_.hardware = fmt::format("CPU: {}", info_.hardware);
    status_->change([&](DeviceReport& r) {
      r.device = options_.device;
      r.insisted = options_.insisted;
    });
    status_->on_attend([this](const CancelToken& cancel) { take_over(cancel); });
    make_.start();
  }
  ~TwoSides() override { status_->on_attend({}); }
  TwoSides(const TwoSides&) = delete;
  TwoSides& operator=(const TwoSides&) = delete;

  const ExecutableInfo& info() const override { return info_; }
  bool mixes_prompt_and_decode() const override { return standby_->executable->mixes_prompt_and_decode(); }
  Cost cost(const StepShape& shape) const override { return preferred()->executable->cost(shape); }
  void wait_until_made() override { make_.wait(); }
  DeviceReport report() const override { return status_->read(); }

  Result<std::unique_ptr<Sequence>> new_sequence() override {
    auto inner = standby_->executable->new_sequence();
    RETURN_IF_ERROR(inner);
    return std::make_unique<HandOverSequence>(standby_, std::move(*inner), standby_);
  }

  // A sequence lives on one side at a time; both keep their weights.
  MemoryNeed need(int64_t tokens, int sequences) const override {
    MemoryNeed n = standby_->executable->need(tokens, sequences);
    if (device_ == nullptr) return n;
    const MemoryNeed d = device_->executable->need(tokens, sequences);
    n.weights_bytes += d.weights_bytes;
    n.work_bytes += d.work_bytes;
    n.state_bytes = std::max(n.state_bytes, d.state_bytes);
    return n;
  }

  // The device may do what it does in a rest while the standby answers for it, too.
  void rest(bool resting) override {
    resting_ = resting;
    if (resting) wants_rest_since_.reset();
    if (device_ != nullptr) onw::rest(*device_->executable, resting || gives_way());
  }
  Upkeep upkeep() const override { return device_ != nullptr ? onw::upkeep(*device_->executable) : Upkeep(); }

  void observe(OpObserver* observer) override {
    observer_ = observer;
    standby_->executable->observe(observer);
    if (device_ != nullptr) device_->executable->observe(observer);
  }

  Result<Outputs> run(const Step& step, const CancelToken& cancel) override {
    RETURN_IF_ERROR(check_step(step, info_, mixes_prompt_and_decode()));
    rest(false);
    take_over(cancel);
    look_at_speed();
    look_at_rest();
    for (;;) {
      if (options_.insisted && given_up_) return refusal();
      std::optional<Error> fault;
      auto outputs = run_parts(step, plan(step), cancel, fault);
      if (!fault) return outputs;  // each fault takes the device, or these sequences from it: this comes to an end
      recover(*fault);
    }
  }

 private:
  static HandOverSequence& mine(Sequence* s) { return static_cast<HandOverSequence&>(*s); }
  const SidePtr& preferred() const { return device_ != nullptr && tokens_.for_device() ? device_ : standby_; }

  // ---- the device comes and goes

  void take_over(const CancelToken& cancel) {
    if (auto made = make_.take()) {
      if (!*made) return give_up(made->error().message);
      made_ = std::move(**made);
      if (auto fits = check_promises(made_->info()); !fits) return give_up(fits.error().message);
    }
    if (made_ == nullptr) return;
    if (options_.check)
      if (auto same = options_.check(*made_, *standby_->executable, cancel); !same) {
        if (same.error().code != Code::cancelled) return give_up(same.error().message);
        return status_->wake();  // whoever waits no longer: when there is time again
      }
    device_ = std::make_shared<Side>();
    device_->name = options_.device;
    device_->executable = std::move(made_);
    if (observer_ != nullptr) device_->executable->observe(observer_);
    steps_since_made_ = 0;
    paused_ = false;
    wants_rest_since_.reset();
    const Speeds known = options_.speeds.read ? options_.speeds.read() : Speeds();
    if (begins_too_slow(known)) return give_up(too_slow(*known.tokens));
    onw::rest(*device_->executable, resting_);
    status_->tell_ready(fmt::format("The {} is ready and goes on with the answers{}", options_.device, kv_text()));
    tell_known(known);
  }

  std::string kv_text() const {
    const KvFormat theirs = device_->executable->info().kv, ours = info_.kv;
    if (theirs == ours) return "";
    return fmt::format(" (keys and values go from {} to {})", onw::name(ours), onw::name(theirs));
  }

  Result<void> check_promises(const ExecutableInfo& d) const {
    const bool fits = d.vocabulary == info_.vocabulary && d.hidden == info_.hidden &&
                      d.max_context >= info_.max_context && d.max_step_rows >= info_.max_partial_rows &&
                      d.max_partial_rows >= info_.max_partial_rows && (d.truncates_freely || !info_.truncates_freely);
    if (!fits) return error(Code::internal, "it promises less than the CPU does. Please report this");
    return {};
  }

  void give_up(const std::string& why) {
    given_up_ = why;
    made_.reset();
    drop_device();
    status_->change([&](DeviceReport& r) {
      r.state = DeviceState::given_up;
      r.why = why;
    });
    status_->tell(options_.insisted ? fmt::format("The {} does not answer: {}", options_.device, why)
                                    : fmt::format("The CPU answers, without the {}: {}", options_.device, why));
  }

  Failure refusal() const {
    const std::string flag = "--device " + options_.device;
    return error(Code::internal,
                 "the {} was asked for ({}) and does not answer; why was told when it was given up. Start onw with "
                 "--device CPU, which answers without it; onw doctor shows what the {} lacks",
                 options_.device, options_.asked_by.empty() ? flag : options_.asked_by, options_.device);
  }

  // What lives on the device goes over to the standby; what cannot now, when it is next used.
  void drop_device() {
    if (device_ == nullptr) return;
    const auto sequences = device_->sequences;
    for (HandOverSequence* s : sequences)
      if (s->open_rows() == 0) (void)move(*s, standby_);
    const auto checkpoints = device_->checkpoints;
    for (HandOverCheckpoint* c : checkpoints) c->expire();
    device_.reset();
  }

  // The device erred, and everything is as before the step.
  void recover(const Error& fault) {
    if (fault.code == Code::numerics || fault.code == Code::out_of_memory) return keep_away(fault);
    status_->change([](DeviceReport& r) { ++r.losses; });
    const bool again = !rebuilt_ || steps_since_made_ >= kStepsToTrustAgain;
    if (!again)
      return give_up(
          fmt::format("it was lost twice ({}). Restart onw; where that does not help, onw doctor shows the "
                      "state of the driver",
                      fault.message));
    rebuilt_ = true;
    drop_device();
    make_.start();
    status_->tell(fmt::format("The {} was lost ({}). The CPU goes on with the answers while it is started anew",
                              options_.device, fault.message));
  }

  // ---- whether it is worth having

  // By an earlier run. What is known needs no trial. True: it is not to be had.
  bool begins_too_slow(const Speeds& known) {
    speeds_ = known;
    prompts_.begin(known.prompts, options_.insisted);
    return tokens_.begin(known.tokens, options_.insisted) == SpeedTrial::Finding::not_worth_it && !options_.insisted;
  }

  void tell_known(const Speeds& known) const {
    if (known.tokens && far_slower(*known.tokens, kTokenTrial)) status_->tell(slow_text(*known.tokens, ""));
    if (known.prompts && far_slower(*known.prompts, kPromptTrial)) status_->tell(prompts_text(*known.prompts));
  }

  std::string too_slow(const StepSeconds& s) const {
    return fmt::format("it gives {}. --device {} takes it all the same; onw compile MODEL --again has it tried anew",
                       describe(s), options_.device);
  }

  std::string slow_text(const StepSeconds& s, std::string_view of) const {
    return fmt::format(
        "The {0} gives {1}, which would be taken{2} if nobody had insisted on the {0}: leave --device {0} out, or "
        "take --device CPU",
        options_.device, describe(s, of), of.empty() ? "" : " for prompts");
  }

  std::string prompts_text(const StepSeconds& s) const {
    if (options_.insisted) return slow_text(s, kOfPrompts);
    return fmt::format(
        "The CPU reads the prompts, and the {0} answers: it gives {1}. --device {0} takes it for both; onw compile "
        "MODEL --again has it tried anew",
        options_.device, describe(s, kOfPrompts));
  }

  // Between steps. One that is far slower rests while there is hope that it becomes faster, and then is tried again.
  void look_at_speed() {
    if (device_ == nullptr) return;
    const Upkeep upkeep = onw::upkeep(*device_->executable);
    using enum SpeedTrial::Finding;
    switch (tokens_.look(upkeep, options_.insisted)) {
      case none:
      case never_compared:
        break;
      case worth_it:
        keep(speeds_.tokens, tokens_);
        break;
      case rests:
        onw::rest(*device_->executable, true);
        status_->tell(
            fmt::format("The CPU goes on with the answers: the {} gives {}. It is tried again when the rest of its "
                        "graphs is ready",
                        options_.device, describe(tokens_.seconds())));
        return;
      case not_worth_it:
        keep(speeds_.tokens, tokens_);
        if (!options_.insisted) return give_up(too_slow(tokens_.seconds()));
        status_->tell(slow_text(tokens_.seconds(), ""));
    }
    switch (prompts_.look(upkeep, options_.insisted)) {
      case none:
      case never_compared:
      case rests:  // of which nothing is told: answers go on by the device
        return;
      case not_worth_it:
        status_->tell(prompts_text(prompts_.seconds()));
        [[fallthrough]];
      case worth_it:
        keep(speeds_.prompts, prompts_);
    }
  }

  void keep(std::optional<StepSeconds>& where, const SpeedTrial& trial) {
    where = trial.seconds();
    if (options_.speeds.write) options_.speeds.write(speeds_);
  }

  // ---- its rest

  // The standby answers for a device that is far slower, or that has waited long for a rest.
  bool gives_way() const { return paused_ || (device_ != nullptr && tokens_.rests()); }

  // Answers that follow each other without end would never let the device load what makes them faster. So after a while
  // they go on by the standby until that is done; nothing of the device runs meanwhile.
  void look_at_rest() {
    if (device_ == nullptr) return;
    const bool wants = onw::upkeep(*device_->executable).wants_rest;
    if (paused_ || !wants) {
      wants_rest_since_.reset();
      if (!paused_ || wants) return;
      paused_ = false;
      return onw::rest(*device_->executable, gives_way());
    }
    if (!wants_rest_since_) wants_rest_since_ = options_.seconds();
    if (options_.seconds() - *wants_rest_since_ < kMostSecondsWithoutRest) return;
    paused_ = true;
    onw::rest(*device_->executable, true);
  }

  // A piece of a step. What several sequences take together is compared with nothing.
  void time_piece(bool device, int64_t rows, size_t sequences, double seconds) {
    tokens_.computed(device);
    if (rows >= kPromptRows) prompts_.computed(device);
    if (sequences != 1) return;
    if (rows == 1) tokens_.add(device, seconds);
    if (rows >= kPromptRows) prompts_.add(device, seconds / static_cast<double>(rows));
  }

  void keep_away(const Error& fault) {
    const bool wrong = fault.code == Code::numerics;
    status_->change([&](DeviceReport& r) { ++(wrong ? r.wrong_steps : r.refused_steps); });
    const DeviceReport r = status_->read();
    if (r.wrong_steps + r.refused_steps > kMostWrongSteps)
      return give_up(fmt::format("it erred in {} steps, the last time: {}", kMostWrongSteps + 1, fault.message));
    for (HandOverSequence* s : at_fault_) s->keep_on_standby_until(s->length() + kStandbyTokens);
    if (r.wrong_steps + r.refused_steps == 1)
      status_->tell(fmt::format("{}. The CPU computes the step again, and goes on for some tokens", fault.message));
  }

  // ---- a step

  bool for_device(const HandOverSequence& s, int64_t rows) const {
    return device_ != nullptr && tokens_.for_device() && (rows < kPromptRows || prompts_.for_device()) && !paused_ &&
           !onw::upkeep(*device_->executable).busy && s.may_leave_standby() &&
           (!options_.prefers_device || options_.prefers_device(s.length()));
  }

  Result<void> move(HandOverSequence& s, const SidePtr& to) {
    if (s.side() == to) return {};
    RETURN_IF_ERROR(s.move_to(to));
    status_->change([](DeviceReport& r) { ++r.moves; });
    return {};
  }

  // Which side computes which rows. A sequence that cannot go to the device stays where it is.
  std::vector<Part> plan(const Step& step) {
    Part standby{.side = standby_}, device{.side = device_};
    std::vector<Part> parts;
    for (size_t i = 0; i < step.sequences.size(); ++i) {
      HandOverSequence& s = mine(step.sequences[i]);
      bool there = for_device(s, std::ranges::count(step.rows, static_cast<int>(i), &Row::sequence));
      if (there && !move(s, device_)) {
        s.keep_on_standby_until(s.length() + kStandbyTokens);
        there = false;
      }
      (there ? device : standby).sequences.push_back(i);
    }
    if (!standby.sequences.empty()) parts.push_back(std::move(standby));
    if (device.sequences.empty()) return parts;
    if (device_->executable->mixes_prompt_and_decode()) {
      parts.push_back(std::move(device));
      return parts;
    }
    for (const size_t i : device.sequences) parts.push_back({device_, {i}});
    return parts;
  }

  // All parts, or none: `fault` is what the device did wrong. Then, and with any error, all is as before the step.
  Result<Outputs> run_parts(const Step& step, const std::vector<Part>& parts, const CancelToken& cancel,
                            std::optional<Error>& fault) {
    std::vector<PartOutputs> outputs(parts.size());
    std::vector<CheckpointPtr> before(step.sequences.size());
    for (size_t p = 0; p < parts.size(); ++p) {
      auto out = run_part(step, parts[p], cancel, parts.size() > 1, before);
      if (out) {
        if (parts.size() == 1) return out;
        outputs[p].keep(*out);
        continue;
      }
      RETURN_IF_ERROR(undo(step, std::span(parts).first(p), before));
      if (parts[p].side == device_ && !is_the_callers(out.error().code)) {
        fault = out.error();
        at_fault_.clear();
        for (const size_t i : parts[p].sequences) at_fault_.push_back(&mine(step.sequences[i]));
      }
      return out;
    }
    return merge(step, parts, outputs);
  }

  // One part, in as many pieces as its side needs. Where it may have to be undone as a whole, `before` gets the states
  // that commit could not bring back.
  Result<Outputs> run_part(const Step& step, const Part& part, const CancelToken& cancel, bool one_of_many,
                           std::vector<CheckpointPtr>& before) {
    for (const size_t i : part.sequences) RETURN_IF_ERROR(move(mine(step.sequences[i]), part.side));
    std::vector<Row> rows;
    std::ranges::copy_if(step.rows, std::back_inserter(rows), [&](const Row& row) {
      return std::ranges::binary_search(part.sequences, static_cast<size_t>(row.sequence));
    });
    const ExecutableInfo& side = part.side->executable->info();
    const auto pieces = cut(rows, static_cast<size_t>(side.max_step_rows));
    for (const size_t i : part.sequences) {
      const auto count = std::ranges::count(rows, static_cast<int>(i), &Row::sequence);
      if (pieces.size() == 1 && (!one_of_many || count <= side.max_partial_rows)) continue;
      auto checkpoint = mine(step.sequences[i]).inner().checkpoint();
      RETURN_IF_ERROR(checkpoint);
      before[i] = std::move(*checkpoint);
    }
    if (pieces.size() == 1) return run_piece(step, part, pieces.front(), cancel);
    pieces_.clear();
    for (const auto& piece : pieces) {
      const auto out = run_piece(step, part, piece, cancel);
      if (!out) {
        RETURN_IF_ERROR(undo(step, {&part, 1}, before));
        return out;
      }
      pieces_.keep(*out);
    }
    return Outputs{pieces_.logits, pieces_.hidden};
  }

  // Pieces of at most `most` rows. A sequence is cut only where it alone is too long.
  static std::vector<std::span<const Row>> cut(std::span<const Row> rows, size_t most) {
    std::vector<std::span<const Row>> pieces;
    size_t begin = 0;
    for (size_t at = 0; at < rows.size();) {
      size_t end = at;
      while (end < rows.size() && rows[end].sequence == rows[at].sequence) ++end;
      if (end - begin <= most) {
        at = end;
        continue;
      }
      const size_t length = at > begin ? at - begin : most;
      pieces.push_back(rows.subspan(begin, length));
      begin += length;
      at = begin;
    }
    pieces.push_back(rows.subspan(begin));
    return pieces;
  }

  // Rows of the step, as a step of their own.
  Result<Outputs> run_piece(const Step& step, const Part& part, std::span<const Row> piece, const CancelToken& cancel) {
    std::vector<HandOverSequence*> sequences;
    std::vector<Sequence*> inner;
    std::vector<Row> rows;
    std::vector<int64_t> begin, count;  // of each sequence: where the step found it, and its rows here
    for (const Row& row : piece) {
      HandOverSequence& s = mine(step.sequences[static_cast<size_t>(row.sequence)]);
      if (sequences.empty() || sequences.back() != &s) {
        sequences.push_back(&s);
        inner.push_back(&s.inner());
        begin.push_back(std::ranges::find(step.rows, row.sequence, &Row::sequence)->index);
        count.push_back(0);
      }
      ++count.back();
      rows.push_back(row);
      rows.back().sequence = static_cast<int>(sequences.size()) - 1;
    }
    const double start = options_.seconds();
    auto out = part.side->executable->run({.sequences = inner, .rows = rows}, cancel);
    RETURN_IF_ERROR(out);
    time_piece(part.side == device_, static_cast<int64_t>(rows.size()), sequences.size(), options_.seconds() - start);
    for (size_t i = 0; i < sequences.size(); ++i) sequences[i]->hold(sequences[i]->length() - begin[i], count[i]);
    const bool device = part.side == device_;
    steps_since_made_ += device ? 1 : 0;
    const bool loads = !device && device_ != nullptr && (paused_ || onw::upkeep(*device_->executable).busy);
    status_->change([&](DeviceReport& r) {
      ++(device ? r.device_steps : r.standby_steps);
      r.rest_steps += loads ? 1 : 0;
    });
    return out;
  }

  // Parts that ran go back to where they were: by their checkpoint, where not any part of a step can be taken back.
  static Result<void> undo(const Step& step, std::span<const Part> parts, const std::vector<CheckpointPtr>& before) {
    for (const Part& part : parts)
      for (const size_t i : part.sequences) {
        HandOverSequence& s = mine(step.sequences[i]);
        if (before[i] == nullptr) {
          s.commit(0);
          continue;
        }
        RETURN_IF_ERROR(s.inner().restore(*before[i]));
        s.hold(0, 0);
      }
    return {};
  }

  // In the order of the step's rows; within a part they have it already.
  Outputs merge(const Step& step, const std::vector<Part>& parts, const std::vector<PartOutputs>& outputs) {
    std::vector<size_t> part_of(step.sequences.size()), logits_at(parts.size()), hidden_at(parts.size());
    for (size_t p = 0; p < parts.size(); ++p)
      for (const size_t i : parts[p].sequences) part_of[i] = p;
    const auto take = [](const std::vector<float>& from, size_t& at, int64_t width, std::vector<float>& to) {
      const auto begin = from.begin() + static_cast<std::ptrdiff_t>(at);
      to.insert(to.end(), begin, begin + width);
      at += static_cast<size_t>(width);
    };
    logits_.clear();
    hidden_.clear();
    for (const Row& row : step.rows) {
      const size_t p = part_of[static_cast<size_t>(row.sequence)];
      if (row.wants_logits) take(outputs[p].logits, logits_at[p], info_.vocabulary, logits_);
      if (row.wants_hidden) take(outputs[p].hidden, hidden_at[p], info_.hidden, hidden_);
    }
    return {logits_, hidden_};
  }

  HandOverOptions options_;
  ExecutableInfo info_;
  SidePtr standby_, device_;          // device_: none until it is ready
  std::unique_ptr<Executable> made_;  // and not yet compared with the standby
  std::shared_ptr<DeviceStatus> status_;
  std::optional<std::string> given_up_;
  bool rebuilt_ = false;
  int64_t steps_since_made_ = 0;
  bool resting_ = false;
  SpeedTrial tokens_{kTokenTrial}, prompts_{kPromptTrial};
  Speeds speeds_;                            // that are known
  bool paused_ = false;                      // the device rests, though answers are under way
  std::optional<double> wants_rest_since_;   // with answers under way
  std::vector<HandOverSequence*> at_fault_;  // of the step that runs
  std::vector<float> logits_, hidden_;
  PartOutputs pieces_;  // of a part that was cut
  OpObserver* observer_ = nullptr;
  BackgroundMake make_;  // the last: its thread ends before the rest
};

}  // namespace

std::unique_ptr<HandOver> make_hand_over(std::unique_ptr<Executable> standby, DeviceMaker maker,
                                         HandOverOptions options) {
  CHECK(standby != nullptr && maker != nullptr);
  return std::make_unique<TwoSides>(std::move(standby), std::move(maker), std::move(options));
}

}  // namespace onw
