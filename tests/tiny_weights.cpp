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

// Our rows of every expert in a published stack.
std::vector<float> rows_of_each(const std::vector<float>& whole, const TinyTensor& tensor, const WeightDecl& weight) {
  const int64_t row = weight.shape.size() == 3 ? weight.shape[2] : 1;
  std::vector<float> values;
  const WeightSource& from = weight.hugging_face;
  const bool transposed = from.transposed && tensor.shape.size() == 3;
  const int64_t rows = tensor.shape[transposed ? 2 : 1];
  for (int64_t e = 0; e < weight.shape[0]; ++e)
    for (int64_t r = 0; r < weight.shape[1]; ++r)
      for (int64_t k = 0; k < row; ++k) {
        const int64_t source = from.begin + r * from.step;
        const int64_t at = transposed ? k * rows + source : source * row + k;
        values.push_back(whole[static_cast<size_t>(e * rows * row + at)]);
      }
  return values;
}

WeightView stack_view(const WeightDecl& weight, const std::vector<float>& values) {
  WeightView view{.format = WeightFormat::f32,
                  .outputs = weight.shape[1],
                  .inputs = weight.shape.size() == 3 ? weight.shape[2] : 1};
  const auto one = static_cast<size_t>(view.outputs * view.inputs);
  view.codes = std::as_bytes(std::span(values).first(one));
  view.experts = weight.shape[0];
  view.expert_stride = static_cast<int64_t>(one * sizeof(float));
  return view;
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
    const std::vector<float> whole = tiny_tensor(golden, *tensor, change);
    if (weight.role == WeightRole::expert) {
      weights->emplace(weight.name, Drawn{weight, rows_of_each(whole, *tensor, weight)});
      continue;
    }
    const int64_t row = weight.shape.size() == 2 ? weight.shape[1] : 1;
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
    if (declaration.role == WeightRole::expert) return stack_view(declaration, values);
    return WeightView{.format = WeightFormat::f32,
                      .outputs = declaration.shape[0],
                      .inputs = declaration.shape.size() == 2 ? declaration.shape[1] : 1,
                      .codes = std::as_bytes(std::span(values))};
  };
  return WeightSet{.find = find, .owner = weights};
}

}  // namespace onw::testing
