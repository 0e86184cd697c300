// What a family declares against what transformers writes: every parameter of every golden is claimed once, whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "graph/json.h"
#include "models/registry.h"
#include "tests/golden.h"

namespace onw::testing {
namespace {

// Rows of each tensor that the Program takes; "model." is the prefix of all but the head.
std::map<std::string, int64_t> claimed_rows(const Program& program, const Golden& golden,
                                            std::map<std::string, int64_t>& stacks) {
  std::map<std::string, int64_t> rows;
  for (const WeightDecl& weight : program.weights)
    for (const std::string& name : weight.hugging_face.names)
      for (const TinyTensor& tensor : golden.tensors)
        if (tensor.name == name || tensor.name == "model." + name) {
          const size_t out = weight.role == WeightRole::expert ? 1 : 0;  // rows of an expert, where it is a stack
          rows[tensor.name] += weight.shape[out];
          const WeightSource& from = weight.hugging_face;
          Shape shape = tensor.shape;                  // in our order
          if (shape.size() > 2) std::erase(shape, 1);  // of convolutions
          EXPECT_EQ(weight.shape.size(), shape.size()) << weight.name;
          if (from.transposed && shape.size() == 3) std::swap(shape[1], shape[2]);
          if (weight.shape.size() > out + 1) EXPECT_EQ(weight.shape.back(), shape.back()) << weight.name;
          if (out == 1) EXPECT_EQ(weight.shape.front(), shape.front()) << weight.name;
          EXPECT_LT(from.begin + (weight.shape[out] - 1) * from.step, shape[out]) << weight.name;
          if (out == 1) stacks[tensor.name] = shape[1];
        }
  return rows;
}

class Declarations : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(Declarations, claim_every_published_tensor_once_and_whole) {
  auto golden = read_golden(GetParam());
  ASSERT_TRUE(golden) << golden.error().message;
  auto config = parse_json(golden->config, golden->name);
  ASSERT_TRUE(config) << config.error().message;
  auto program = build_program(*config);
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_EQ(program->vocabulary, golden->vocabulary);
  std::map<std::string, int64_t> stacks;  // rows of each expert
  const auto rows = claimed_rows(*program, *golden, stacks);
  for (const TinyTensor& tensor : golden->tensors) {
    const auto found = rows.find(tensor.name);
    EXPECT_EQ(found == rows.end() ? 0 : found->second,
              stacks.contains(tensor.name) ? stacks[tensor.name] : tensor.shape.front())
        << tensor.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, Declarations,
                         ::testing::ValuesIn(golden_paths(std::filesystem::path(ONW_SOURCE_DIR) / "tests" / "goldens")),
                         [](const auto& info) {
                           std::string name = info.param.stem().string();
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace onw::testing
