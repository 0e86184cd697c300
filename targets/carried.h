// What Programs that guess from another model's hidden states have beside body and head (models/mtp.h).
#pragma once

#include <algorithm>

#include "graph/ops.h"
#include "graph/program.h"

namespace onw {

// Whether rows bring a hidden state: the body has an input "carried" [S, hidden].
inline bool carries_hidden(const Program& program) {
  const Function* body = program.function("body");
  return body != nullptr &&
         std::ranges::any_of(body->nodes, [](const Node& n) { return n.op == Op::input && n.label == "carried"; });
}

// How many tokens the function "short_head" knows; 0 where there is none.
inline int64_t short_vocabulary(const Program& program) {
  const Function* head = program.function("short_head");
  if (head == nullptr) return 0;
  const auto logits = std::ranges::find(head->outputs, "logits", &Output::name);
  return logits == head->outputs.end() ? 0 : head->type(logits->value).last();
}

}  // namespace onw
