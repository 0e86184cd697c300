#include "models/rotated.h"

#include <algorithm>
#include <bit>
#include <map>
#include <nlohmann/json.hpp>

#include "graph/json.h"
#include "graph/ops.h"

namespace onw {
namespace {

using nlohmann::json;

// What a listed module's weight needs.
struct Rotation {
  std::string signs;  // the weight with them
  int64_t block = 0;
  bool embedding = false;
};

// "model.layers.0.mlp.up_proj" as weights name it: "layers.0.mlp.up_proj".
std::string_view without_prefix(std::string_view path) {
  for (const std::string_view prefix : {"language_model.", "model.", "language_model."})
    if (path.starts_with(prefix)) path.remove_prefix(prefix.size());
  return path;
}

bool is_of(const WeightDecl& w, std::string_view path) {
  return std::ranges::any_of(w.hugging_face.names, [&](std::string_view name) {
    return name.size() == path.size() + 7 && name.starts_with(path) && name.ends_with(".weight");
  });
}

Result<Rotation> read_module(const json& module, std::string_view path) {
  const int64_t block = find_int(module, "block").value_or(0);
  if (block < 2 || block > kMostRotatedBlock || !std::has_single_bit(static_cast<uint64_t>(block)))
    return error(Code::unsupported,
                 "config.json: '{}' of '{}' has blocks of {}, powers of two from 2 to {} are computed. Take the "
                 "publisher's unrotated model",
                 kRotatedKey, path, block, kMostRotatedBlock);
  return Rotation{.block = block, .embedding = find_bool(module, "embedding").value_or(false)};
}

using Rotations = std::map<std::string, Rotation, std::less<>>;  // by our weight's name

Result<void> add_module(Program& program, const json& module, Rotations& rotations) {
  const std::string path = module.is_object() ? find_string(module, "path").value_or("") : "";
  if (path.empty())
    return error(Code::bad_format, "config.json: '{}' lists something without a 'path'. Download it again",
                 kRotatedKey);
  auto rotation = read_module(module, path);
  RETURN_IF_ERROR(rotation);
  const std::string_view name = without_prefix(path);
  std::optional<WeightDecl> signs;
  for (const WeightDecl& w : program.weights) {
    if (!is_of(w, name)) continue;
    const bool is_embedding = w.name == program.embedding;
    if (w.shape.size() != 2 || w.shape[1] % rotation->block != 0 || is_embedding != rotation->embedding)
      return error(Code::bad_format,
                   "config.json: '{}' lists '{}' with blocks of {} as {}, but '{}' is {} of [{}]. The files do not "
                   "belong together: download them again",
                   kRotatedKey, path, rotation->block, rotation->embedding ? "an embedding" : "a product", w.name,
                   is_embedding ? "the embedding" : "a weight", fmt::join(w.shape, ", "));
    if (!signs) {
      rotation->signs = w.name + ".signs";
      signs = WeightDecl{.name = rotation->signs, .shape = {w.shape[1]}, .role = WeightRole::vector};
      signs->hugging_face.names = {std::string(name) + ".signs"};
    }
    if (!rotations.emplace(w.name, *rotation).second)
      return error(Code::bad_format, "config.json: '{}' lists '{}' twice. Download it again", kRotatedKey, path);
  }
  if (!signs)
    return error(Code::unsupported,
                 "config.json: '{}' lists '{}', for which the family {} has no matrix. Take the publisher's unrotated "
                 "model",
                 kRotatedKey, path, program.family);
  program.weights.push_back(std::move(*signs));
  return {};
}

// A function with the transforms between its nodes.
class Rotating {
 public:
  Rotating(const Program& program, const Function& f, const Rotations& rotations)
      : program_(program), f_(f), rotations_(rotations), map_(f.nodes.size()) {}

  Function run() {
    for (size_t i = 0; i < f_.nodes.size(); ++i) map_[i] = copy(f_.nodes[i]);
    for (const Output& o : f_.outputs) to_.outputs.push_back({o.name, map(o.value)});
    to_.name = f_.name;
    return std::move(to_);
  }

 private:
  Value map(Value v) const { return map_[static_cast<size_t>(v.id)]; }

  Value append(Node node) {
    to_.nodes.push_back(std::move(node));
    return Value{static_cast<int32_t>(to_.nodes.size()) - 1};
  }

  Value copy(const Node& old) {
    Node n = old;
    for (Value& v : n.inputs) v = map(v);
    const bool is_linear = n.op == Op::linear || n.op == Op::linear_add;
    if (!is_linear) return unrotated(append(std::move(n)));
    const size_t x = n.op == Op::linear ? 0 : 1;
    const auto rotation = rotations_.find(to_.node(n.inputs[x + 1]).label);
    if (rotation != rotations_.end()) n.inputs[x] = rotated(n.inputs[x], rotation->second);
    return append(std::move(n));
  }

  // The value itself, but for what the host looked up in a rotated table.
  Value unrotated(Value v) {
    const Node& n = to_.node(v);
    const auto rotation = rotations_.find(program_.embedding);
    if (n.op != Op::input || n.label != "x" || f_.name != "body" || rotation == rotations_.end()) return v;
    return transform(v, rotation->second, "unrotated", {{"block", rotation->second.block}, {"inverse", int64_t{1}}});
  }

  Value rotated(Value x, const Rotation& rotation) {
    const auto [at, is_new] = rotated_.try_emplace({x, rotation.signs});
    if (is_new) at->second = transform(x, rotation, "rotated." + rotation.signs, {{"block", rotation.block}});
    return at->second;
  }

  Value transform(Value x, const Rotation& rotation, std::string_view what, Attributes attributes) {
    const Type type = to_.type(x);
    std::string label = fmt::format("{}.{}", to_.node(x).label, what);
    const Value s = signs(rotation);
    return append({Op::hadamard, std::move(label), {x, s}, std::move(attributes), type, {}});
  }

  Value signs(const Rotation& rotation) {
    const auto [at, is_new] = signs_.try_emplace(rotation.signs);
    if (is_new)
      at->second =
          append({Op::weight, rotation.signs, {}, {}, Type{DType::f32, program_.weight(rotation.signs)->shape, 0}, {}});
    return at->second;
  }

  const Program& program_;
  const Function& f_;
  const Rotations& rotations_;
  Function to_;
  std::vector<Value> map_;
  std::map<std::string, Value, std::less<>> signs_;
  std::map<std::pair<Value, std::string>, Value> rotated_;
};

}  // namespace

bool is_rotated(const json& config) { return config.is_object() && config.contains(kRotatedKey); }

Result<void> rotate_inputs(Program& program, const json& config) {
  if (!is_rotated(config)) return {};
  const json& modules = config.at(std::string(kRotatedKey));
  if (!modules.is_array() || modules.empty())
    return error(Code::bad_format, "config.json: '{}' is no list of modules. Download it again", kRotatedKey);
  Rotations rotations;
  for (const json& module : modules) RETURN_IF_ERROR(add_module(program, module, rotations));
  for (Function& f : program.functions) {
    Function rotated = Rotating(program, f, rotations).run();
    f = std::move(rotated);
  }
  return {};
}

}  // namespace onw
