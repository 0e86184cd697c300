#include "graph/graph.h"

#include "base/result.h"
#include "graph/program.h"

namespace onw {

void Attributes::set(std::string_view key, Attribute value) {
  for (auto& [name, old] : list_) {
    if (name == key) {
      old = std::move(value);
      return;
    }
  }
  list_.emplace_back(key, std::move(value));
}

const Attribute* Attributes::find(std::string_view key) const {
  for (const auto& [name, value] : list_)
    if (name == key) return &value;
  return nullptr;
}

int64_t Attributes::integer(std::string_view key, int64_t otherwise) const {
  const Attribute* a = find(key);
  return a != nullptr && std::holds_alternative<int64_t>(*a) ? std::get<int64_t>(*a) : otherwise;
}

double Attributes::number(std::string_view key, double otherwise) const {
  const Attribute* a = find(key);
  if (a == nullptr) return otherwise;
  if (const auto* n = std::get_if<int64_t>(a)) return static_cast<double>(*n);
  const auto* x = std::get_if<double>(a);
  return x != nullptr ? *x : otherwise;
}

std::string_view Attributes::text(std::string_view key, std::string_view otherwise) const {
  const Attribute* a = find(key);
  return a != nullptr && std::holds_alternative<std::string>(*a) ? std::get<std::string>(*a) : otherwise;
}

const std::vector<int64_t>& Attributes::integers(std::string_view key) const {
  const Attribute* a = find(key);
  CHECK(a != nullptr && std::holds_alternative<std::vector<int64_t>>(*a));
  return std::get<std::vector<int64_t>>(*a);
}

const Function* Program::function(std::string_view name) const {
  for (const Function& f : functions)
    if (f.name == name) return &f;
  return nullptr;
}

const WeightDecl* Program::weight(std::string_view name) const {
  for (const WeightDecl& w : weights)
    if (w.name == name) return &w;
  return nullptr;
}

int Program::state(std::string_view name) const {
  for (size_t i = 0; i < states.size(); ++i)
    if (states[i].name == name) return static_cast<int>(i);
  return -1;
}

int Program::place(int state) const {
  const auto kv = [this](int i) { return states[static_cast<size_t>(i)].kind == StateKind::kv; };
  int before = 0;
  for (int i = 0; i < state; ++i) before += kv(i) == kv(state) ? 1 : 0;
  return before;
}

}  // namespace onw
