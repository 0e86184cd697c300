// Times prompts and decoding of an executable, and counts what they must read and multiply.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/bench_conversations.h"
#include "cli/bench_profile.h"
#include "cli/bench_replay.h"
#include "graph/program.h"
#include "store/engine_json.h"
#include "targets/executable.h"

namespace onw::cli {

// What the products with weights cost; attention over the cache is counted in bytes only.
struct ModelCost {
  int64_t step_bytes = 0;    // weights that every step reads: all but an embedding that is only looked up
  int64_t expert_bytes = 0;  // of all experts
  double expert_share = 0;   // of them that a row takes
  int64_t body_ops = 0;      // of one row through the body; a multiplication and an addition are two
  int64_t head_ops = 0;      // of one row of logits

  // What a step of so many rows reads, where each row chooses experts by chance.
  double bytes(int64_t rows) const;
};
ModelCost model_cost(const Program& program, const EngineInfo& engine);

struct BenchCase {
  bool prompt = true;
  int64_t rows = 0;   // tokens of the prompt, or tokens drawn one after another
  int64_t depth = 0;  // tokens in each cache before
  int batch = 1;      // conversations at the same time
};

struct BenchTiming {
  BenchCase what;
  double seconds = 0;      // of the whole prompt, or of one decode step: the median
  double host_share = -1;  // of them, neither in the graphs of a device (OpenVINO's) nor in attention; -1: no graphs
  double tokens_per_s = 0;
  double bytes_per_s = 0;
  double ops_per_s = 0;
  double plain_tokens_per_s = 0;  // of a recorded text: without drafts; 0: none were tried
  int64_t drafted = 0, accepted = 0;
  int64_t mtp_drafted = 0, mtp_accepted = 0;         // of them, by the model's own layer for it
  std::array<int64_t, 8> mtp_judged{}, mtp_right{};  // as ReplayTiming has them
  std::vector<ProfileLine> profile;                  // of a further prompt, or of `profiled_steps` further steps
  int64_t profiled_steps = 0;
};

class Bench {
 public:
  // `counts_graphs`: of a target that hands graphs to a device.
  Bench(Executable& executable, const ModelCost& cost, const Draw& draw, bool counts_graphs)
      : executable_(executable),
        cost_(cost),
        draw_(draw),
        conversations_(executable, draw_),
        counts_graphs_(counts_graphs) {}
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  // Errors: those of the executable; context_overflow names the case.
  Result<BenchTiming> time(const BenchCase& what, bool profile);

  // Decoding of a recorded text, with drafts and without. Errors: those of time_replay.
  Result<BenchTiming> time_recorded(const BenchCase& what, std::span<const int32_t> recording,
                                    const ReplayDrafts& drafts);

 private:
  // Seconds of each round, or step; and the share of them all that computes neither graphs nor attention, -1 without
  // graphs.
  struct Timed {
    std::vector<double> seconds;
    double host_share = -1;
  };
  Result<Timed> time_prompt(const BenchCase& what, int rounds);
  Result<Timed> time_decode(const BenchCase& what, int64_t steps);
  Result<void> check_room(const BenchCase& what) const;
  Result<void> add_profile(BenchTiming& timing);
  void count(BenchTiming& timing) const;

  Executable& executable_;
  ModelCost cost_;
  Draw draw_;
  Conversations conversations_;
  bool counts_graphs_;
};

}  // namespace onw::cli
