#include "tests/tiny_weights.h"

#include <map>
#include <string>

#include "convert/read_rows.h"

namespace onw::testing {
namespace {

struct Drawn {
  WeightDecl declaration;
  std::vector<float> values;
};
using Weights = std::map<std::string, Drawn, std::less<>>;

const TinyTensor* published(const Golden& golden, const WeightSource& source) {
  for (const std::string& name : source.names)
    for (const TinyTensor& tensor : golden.tensors)
      if (tensor.name == name || tensor.name == "model." + name) return &tensor;
  return nullptr;
}

int64_t published_row(const WeightDecl& weight, int64_t row) {
  const WeightSource& from = weight.hugging_face;
  if (from.fold != Fold::head_half) return from.begin + row;
  return from.begin + row / weight.head_dim * 2 * weight.head_dim + row % weight.head_dim;
}

}  // namespace

Result<WeightSet> tiny_weights(const Golden& golden, const Program& program, const TinyChange& change) {
  auto weights = std::make_shared<Weights>();
  for (const WeightDecl& weight : program.weights) {
    const TinyTensor* tensor = published(golden, weight.hugging_face);
    if (tensor == nullptr)
      return error(Code::missing_tensor, "{}: no published tensor for '{}'", golden.name, weight.name);
    CHECK(weight.hugging_face.fold != Fold::rope_unpair);  // of GGUF files
    const int64_t row = weight.shape.size() == 2 ? weight.shape[1] : 1;
    const std::vector<float> whole = tiny_tensor(golden, *tensor, change);
    std::vector<float> values;
    for (int64_t r = 0; r < weight.shape[0]; ++r) {
      const auto begin = whole.begin() + published_row(weight, r) * row;
      values.insert(values.end(), begin, begin + row);
    }
    if (weight.hugging_face.fold == Fold::minus_exp)
      for (float& x : values) x = minus_exp(x);
    if (weight.hugging_face.fold == Fold::add_one)
      for (float& x : values) x += 1;
    weights->emplace(weight.name, Drawn{weight, std::move(values)});
  }
  const auto find = [weights](std::string_view name) -> Result<WeightView> {
    const auto found = weights->find(name);
    if (found == weights->end()) return error(Code::missing_tensor, "no weight '{}'", name);
    const auto& [declaration, values] = found->second;
    return WeightView{.format = WeightFormat::f32,
                      .outputs = declaration.shape[0],
                      .inputs = declaration.shape.size() == 2 ? declaration.shape[1] : 1,
                      .codes = std::as_bytes(std::span(values))};
  };
  return WeightSet{.find = find, .owner = weights};
}

}  // namespace onw::testing
