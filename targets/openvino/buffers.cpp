#include "targets/openvino/buffers.h"

#include <algorithm>
#include <limits>

#include "base/checked.h"
#include "graph/ops.h"

namespace onw::openvino {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int kEnd = std::numeric_limits<int>::max();

// Segment s runs at time 2s, the host steps behind it at 2s + 1.
struct Life {
  int begin = kEnd;
  int end = -1;
  int64_t width = 0;

  void use(int time) { end = std::max(end, time); }
};

using Lives = std::map<std::string, Life, std::less<>>;

Result<Life*> life_of(Lives& lives, const std::string& name, const Type& type) {
  if (type.dtype != DType::f32 || type.shape.empty() || type.shape[0] != kRows)
    return error(Code::unsupported, "'{}' is {}: only rows of f32 pass between graphs", name, to_string(type));
  Life& life = lives[name];
  life.width = type.row_elements();
  return &life;
}

Result<Lives> lives_of(const CutFunction& cut) {
  Lives lives;
  for (size_t s = 0; s < cut.segments.size(); ++s) {
    const int time = 2 * static_cast<int>(s);
    for (const Output& o : cut.segments[s].outputs) {
      auto life = life_of(lives, o.name, cut.segments[s].type(o.value));
      RETURN_IF_ERROR(life);
      (*life)->begin = std::min((*life)->begin, time);
      (*life)->use(s + 1 == cut.segments.size() ? kEnd : time);
    }
    for (const Node& n : cut.segments[s].nodes) {
      if (n.op != Op::input) continue;
      auto life = life_of(lives, n.label, n.type);
      RETURN_IF_ERROR(life);
      if ((*life)->begin == kEnd) (*life)->begin = -1;  // nobody made it: the function's own
      (*life)->use(time);
    }
    if (s >= cut.host.size()) continue;
    for (const HostStep& step : cut.host[s]) {
      for (const std::string& name : step.operands)
        if (const auto found = lives.find(name); found != lives.end()) found->second.use(time + 1);
      if (!step.crosses) continue;
      auto life = life_of(lives, step.result, step.node.type);
      RETURN_IF_ERROR(life);
      (*life)->begin = time + 1;
      (*life)->use(time + 1);
    }
  }
  return lives;
}

struct Block {
  int64_t bytes = 0;
  int busy_until = -1;
  std::vector<std::string> names;
};

}  // namespace

Result<BufferPlan> plan_buffers(const CutFunction& cut, int64_t max_rows) {
  const auto lives = lives_of(cut);
  RETURN_IF_ERROR(lives);
  std::vector<std::pair<std::string, Life>> ordered(lives->begin(), lives->end());
  std::ranges::sort(ordered, {}, [](const auto& entry) { return std::pair(entry.second.begin, entry.first); });
  std::vector<Block> blocks;
  for (const auto& [name, life] : ordered) {
    const int64_t bytes = round_up(max_rows * life.width * 4, kAlignment);
    const auto free = std::ranges::find_if(blocks, [&](const Block& b) { return b.busy_until < life.begin; });
    Block& block = free == blocks.end() ? blocks.emplace_back() : *free;
    block.bytes = std::max(block.bytes, bytes);
    block.busy_until = life.end;
    block.names.push_back(name);
  }
  BufferPlan plan;
  for (const Block& block : blocks) {
    for (const std::string& name : block.names) {
      const int64_t width = lives->at(name).width;
      plan.slots[name] = {.offset = plan.bytes, .stride = width, .width = width};
    }
    plan.bytes += block.bytes;
  }
  return plan;
}

}  // namespace onw::openvino
