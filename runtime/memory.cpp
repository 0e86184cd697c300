#include "runtime/memory.h"

#include <algorithm>
#include <utility>

namespace onw {
namespace {

constexpr int64_t kDefaultContext = 32768;

// Families together, and within one so that what a conversation shares with any other, it shares with a neighbour.
bool before(const Conversation* a, const Conversation* b) {
  if (a->family() != b->family()) return a->family() < b->family();
  return std::ranges::lexicographical_compare(a->keys(), b->keys(), [](const TokenKey& x, const TokenKey& y) {
    return std::pair(x.token, x.content_digest) < std::pair(y.token, y.content_digest);
  });
}

double gigabytes(int64_t bytes) { return static_cast<double>(bytes) / 1e9; }

// The longest context, in whole pages, of which one sequence fits; 0 for none.
int64_t longest_fitting(const Executable& executable, int64_t memory_bytes) {
  const int64_t model = executable.info().max_context;
  if (executable.need(model, 1).total() <= memory_bytes) return model;
  int64_t fits = 0, too_many = model / kPageTokens + 1;  // in pages
  while (too_many - fits > 1) {
    const int64_t middle = fits + (too_many - fits) / 2;
    (executable.need(middle * kPageTokens, 1).total() <= memory_bytes ? fits : too_many) = middle;
  }
  return fits * kPageTokens;
}

}  // namespace

int64_t state_bytes(const Executable& executable, int64_t tokens) {
  return executable.need(whole_pages(tokens), 1).state_bytes;
}

int64_t state_bytes(const Executable& executable, std::vector<const Conversation*> conversations) {
  std::ranges::sort(conversations, before);
  int64_t bytes = 0;
  for (size_t i = 0; i < conversations.size(); ++i) {
    const Conversation& c = *conversations[i];
    bytes += state_bytes(executable, c.length()) + c.checkpoint_bytes();
    if (i == 0 || conversations[i - 1]->family() != c.family()) continue;
    const Conversation& neighbour = *conversations[i - 1];
    const int64_t forked_at = std::max(c.forked_at(), neighbour.forked_at());
    const int64_t common = std::min(common_prefix(c.keys(), neighbour.keys()), forked_at);
    // Whole pages are shared; what does not grow with the length is each one's own.
    bytes -= state_bytes(executable, common / kPageTokens * kPageTokens) - state_bytes(executable, 0);
  }
  return bytes;
}

Result<ContextChoice> choose_context(const Executable& executable, int64_t asked, int64_t memory_bytes) {
  const int64_t model = executable.info().max_context;
  if (asked < 0 || asked > model)
    return error(Code::invalid_argument, "context {} is not possible: the model takes 1 to {} tokens", asked, model);
  const int64_t fits = longest_fitting(executable, memory_bytes);
  const int64_t least = asked > 0 ? asked : std::min(kPageTokens, model);
  if (fits < least && executable.need(least, 1).total() > memory_bytes) {
    const MemoryNeed need = executable.need(least, 1);
    const std::string remedy =
        fits > 0 ? fmt::format("a context of {} would fit", fits) : "free memory, or take a smaller model or format";
    return error(Code::out_of_memory,
                 "a context of {} tokens needs {:.2f} GB ({:.2f} weights, {:.2f} states, {:.2f} work), but {:.2f} GB "
                 "are available: {}",
                 least, gigabytes(need.total()), gigabytes(need.weights_bytes), gigabytes(need.state_bytes),
                 gigabytes(need.work_bytes), gigabytes(memory_bytes), remedy);
  }
  if (asked > 0) return ContextChoice{asked, "as asked"};
  if (fits < std::min(model, kDefaultContext)) return ContextChoice{std::max(fits, least), "what memory allows"};
  if (model <= kDefaultContext) return ContextChoice{model, "the model's"};
  return ContextChoice{kDefaultContext, "the default"};
}

}  // namespace onw
