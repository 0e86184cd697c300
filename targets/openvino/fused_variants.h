// The fused forms of a model, compiled beside the answers, the shortest first, by processes of their own: nothing here
// makes an executor while the device computes, because an NPU was lost by that. What is compiled is loaded while no
// answer is under way, on a thread of its own. Where none covers a step, or one fails, the segments answer.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "targets/openvino/compile.h"
#include "targets/openvino/fused_graph.h"
#include "targets/rest.h"

namespace onw::openvino {

struct FusedSetup {
  Program program;
  WeightSet weights;
  CutFunction pieces;  // of the body
  FusedPlaces places;
  OpenVinoOptions options;
  Properties properties;
  std::string_view formats;         // the device's column of the table of formats
  std::vector<int64_t> block_rows;  // ascending
};

class FusedVariants {
 public:
  // Begins to compile, where the options have a store; without one a variant is compiled where others are loaded.
  explicit FusedVariants(FusedSetup setup);
  // Stops the processes that compile, and waits for a graph that is being loaded.
  ~FusedVariants();
  FusedVariants(const FusedVariants&) = delete;
  FusedVariants& operator=(const FusedVariants&) = delete;

  struct Variant {
    FusedForm form;
    std::optional<FusedGraph> graph;  // loaded
    bool proven = false;              // against the segments, here or in an earlier run
    int64_t used = 0;                 // the last step that it computed for
    // How it was made, from there on untouched by the thread that made it.
    std::unique_ptr<Constants> constants = {};
    std::vector<Ir> graphs = {};
    std::vector<Blob> blobs = {};
    enum class State { waiting, compiled, failed } state = State::waiting;
  };

  // As Rests::rest: while it lasts, what is compiled is loaded. A variant is wanted that covers where the last
  // step was, the shortest for each number of rows; where there is no room, one that has rested for a while goes for
  // it. In what room is left the next longer ones are loaded, so that an answer that grows finds them.
  void rest(bool resting);
  Upkeep upkeep() const;

  // Ends a rest, once nothing is being loaded.
  void begin_step();

  // The shortest loaded variant that covers rows behind `cached` positions, in a graph of `rows`. Null: none.
  Variant* choose(int64_t rows, int64_t cached);

  // The first rows of a variant, computed both ways: with a mean KL of at most kMostKl it is proven, and the verdict
  // kept with the blobs. Else it is given up, in later runs too.
  static constexpr double kMostKl = 0.05;
  void judge(Variant& variant, std::span<const float> fused, std::span<const float> segments, int64_t vocabulary);

  // It computed wrongly or not at all: from now on it is not chosen.
  void give_up(Variant& variant, const std::string& why);
  // All that were chosen for this step. Returns whether there were any.
  bool give_up_chosen(const std::string& why);

 private:
  void make_all();
  bool is_due(const FusedForm& form) const;
  bool wait_until_due(const Variant& variant);
  Result<void> make(Variant& variant) const;
  Result<std::vector<CompiledModel>> models_of(const Variant& variant) const;
  void load_all();
  Variant* next_to_load() const;
  Variant* who_goes() const;
  bool has_room() const;
  void load(Variant& variant);
  void tell(const Variant& variant, FusedNews::What what, const std::string& why = "") const;

  FusedSetup setup_;
  int64_t step_ = 0;
  // Of the states and what follows. What else a variant has belongs, once it is compiled, to the thread that loads
  // while that loads, else to the engine's.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  CancelToken stop_;
  bool resting_ = false, loading_ = false;
  int64_t loads_ = 0;
  int64_t longest_ = 0, last_ = 0;                  // positions that a step had cached; that the last one had
  std::vector<std::unique_ptr<Variant>> variants_;  // by length, then rows
  std::thread maker_, loader_;
};

}  // namespace onw::openvino
