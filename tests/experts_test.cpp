// Mixtures of experts from published files to answers: the two ways in which experts are published, what is wrong with
// them, the records that convert writes, and the CPU on records of either layout.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/half.h"
#include "base/temp_folder.h"
#include "convert/convert.h"
#include "graph/json.h"
#include "runtime/load.h"
#include "store/model_folder.h"
#include "store/safetensors_bytes.h"
#include "tests/golden.h"
#include "tests/run_ids.h"
#include "tests/tiny_model.h"

namespace onw::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Published {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
  std::string dtype = "F32";
};

class ExpertFolders : public ::testing::Test {
 protected:
  void SetUp() override {
    auto golden = read_golden(std::filesystem::path(ONW_SOURCE_DIR) / "tests/goldens/qwen3_moe-g64.safetensors");
    ASSERT_TRUE(golden) << golden.error().message;
    golden_ = std::move(*golden);
    config_ = nlohmann::json::parse(golden_.config);
    for (const TinyTensor& t : golden_.tensors) stacks_.push_back({t.name, t.shape, tiny_tensor(golden_, t)});
  }

  // One tensor an expert, as published checkpoints have them.
  std::vector<Published> singles() const {
    std::vector<Published> all;
    for (const Published& p : stacks_) {
      if (p.shape.size() != 3) {
        all.push_back(p);
        continue;
      }
      const bool fused = p.name.ends_with("gate_up_proj");
      const std::string prefix = p.name.substr(0, p.name.rfind('.') + 1);
      const int64_t rows = fused ? p.shape[1] / 2 : p.shape[1], columns = p.shape[2];
      auto at = p.values.begin();
      for (int64_t e = 0; e < p.shape[0]; ++e)
        for (const char* part : fused ? std::vector{"gate", "up"} : std::vector{"down"}) {
          all.push_back(
              {fmt::format("{}{}.{}_proj.weight", prefix, e, part), {rows, columns}, {at, at + rows * columns}});
          at += rows * columns;
        }
    }
    return all;
  }

  std::filesystem::path write(const std::string& name, const std::vector<Published>& tensors) const {
    SafetensorsBytes file;
    for (const Published& p : tensors) {
      std::vector<uint16_t> halves;
      for (const float x : p.values) halves.push_back(float_to_half(x));
      if (p.dtype == "F16")
        file.add(p.name, p.dtype, p.shape, {reinterpret_cast<const char*>(halves.data()), halves.size() * 2});
      else
        file.add_f32(p.name, p.shape, p.values);
    }
    folder_.write(name + "/config.json", config_.dump());
    return folder_.write(name + "/model.safetensors", file.bytes()).parent_path();
  }

  std::string converted(const std::string& name, const std::vector<Published>& tensors,
                        const ConvertOptions& options = {.format = WeightFormat::q8c}) const {
    const auto done = convert(write(name + ".published", tensors), folder_ / name, options);
    return done ? "" : done.error().message;
  }

  std::string file(const std::string& name) const {
    std::ifstream in(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::vector<float> logits(const std::string& name, const LoadOptions& options) const {
    const auto target = load_executable(folder_ / name, options);
    EXPECT_TRUE(target) << target.error().message;
    if (!target) return {};
    return logits_in_segments(**target, golden_.ids, golden_.segments).value();
  }

  TempFolder folder_;
  Golden golden_;
  nlohmann::json config_;
  std::vector<Published> stacks_;
};

Published& named(std::vector<Published>& all, std::string_view part) {
  return *std::ranges::find_if(all, [&](const Published& p) { return p.name.find(part) != p.name.npos; });
}

TEST_F(ExpertFolders, of_stacks_and_of_single_tensors_are_the_same) {
  ASSERT_EQ(converted("stacks", stacks_), "");
  ASSERT_EQ(converted("singles", singles()), "");
  EXPECT_GT(file("stacks/experts.safetensors").size(), 100000U);
  EXPECT_EQ(file("stacks/experts.safetensors"), file("singles/experts.safetensors"));
  EXPECT_EQ(file("stacks/weights.safetensors"), file("singles/weights.safetensors"));
}

TEST_F(ExpertFolders, hold_a_record_for_each_expert_as_engine_json_says) {
  ASSERT_EQ(converted("m", stacks_, {.format = WeightFormat::q4c}), "");
  const auto folder = ModelFolder::open(folder_ / "m");
  ASSERT_TRUE(folder) << folder.error().message;
  EXPECT_THAT(folder->shape("layers.1.experts.down"), ElementsAre(8, 320, 320));
  const auto gate = folder->weight("layers.1.experts.gate"), up = folder->weight("layers.1.experts.up");
  ASSERT_TRUE(gate && up);
  EXPECT_EQ(gate->experts, 8);
  EXPECT_EQ(gate->expert_stride % 4096, 0);
  EXPECT_EQ((gate->codes.data() - folder->experts().data().data()) % 4096, 0);
  EXPECT_EQ(up->codes.data(), gate->codes.data() + gate->codes.size());
  const auto engine = read_json_file(folder_ / "m" / "engine.json");
  const nlohmann::json& records = (*engine)["experts"]["layers.1.experts"];
  EXPECT_EQ(records["record_bytes"], gate->expert_stride);
  EXPECT_EQ(records["parts"][1]["codes"], 320 * 320 / 2);
  EXPECT_TRUE(folder->check_deep());
}

TEST_F(ExpertFolders, say_which_expert_is_missing_too_many_or_of_another_type) {
  auto missing = singles();
  std::erase_if(missing, [](const Published& p) { return p.name.ends_with("layers.1.mlp.experts.3.up_proj.weight"); });
  EXPECT_THAT(converted("a", missing), AllOf(HasSubstr("experts.3.up_proj.weight"), HasSubstr("complete")));
  auto more = singles();
  more.push_back(named(more, "layers.0.mlp.experts.7.down"));
  more.back().name = "model.layers.0.mlp.experts.8.down_proj.weight";
  EXPECT_THAT(converted("b", more), AllOf(HasSubstr("experts.8.down_proj.weight"), HasSubstr("8 experts")));
  auto mixed = singles();
  named(mixed, "layers.0.mlp.experts.5.gate").dtype = "F16";
  EXPECT_THAT(converted("c", mixed),
              AllOf(HasSubstr("experts.5.gate_proj.weight"), HasSubstr("F16"), HasSubstr("F32")));
  auto none = stacks_;
  std::erase_if(none, [](const Published& p) { return p.name.ends_with("layers.1.mlp.experts.down_proj"); });
  EXPECT_THAT(converted("d", none), AllOf(HasSubstr("layers.1.experts.down"), HasSubstr("mlp.experts.{e}.down_proj")));
  auto broken = singles();
  named(broken, "layers.0.mlp.experts.2.up").values[5] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(converted("e", broken), AllOf(HasSubstr("of expert 2"), HasSubstr("inf")));
}

TEST_F(ExpertFolders, are_not_made_for_a_config_of_other_sizes) {
  config_["moe_intermediate_size"] = 160;
  EXPECT_THAT(converted("a", stacks_), HasSubstr("do not belong together"));
  EXPECT_THAT(converted("b", singles()), AllOf(HasSubstr("[320, 320]"), HasSubstr("[160, 320]")));
  config_ = nlohmann::json::parse(golden_.config);
  config_["num_local_experts"] = 7;
  EXPECT_THAT(converted("c", singles()), HasSubstr("do not belong together"));
}

TEST_F(ExpertFolders, are_gone_on_with_where_a_run_was_stopped) {
  ASSERT_EQ(converted("whole", stacks_), "");
  const auto from = write("published", stacks_);
  int told = 0;
  const auto stopped = convert(from, folder_ / "parts", {.format = WeightFormat::q8c}, [&](const ConvertProgress& p) {
    return p.bytes_done < p.bytes_total * 9 / 10 || ++told < 2;
  });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Code::cancelled);
  ASSERT_TRUE(convert(from, folder_ / "parts", {.format = WeightFormat::q8c}));
  EXPECT_EQ(file("parts/experts.safetensors"), file("whole/experts.safetensors"));
}

TEST_F(ExpertFolders, answer_on_the_cpu_as_the_quantised_reference_from_either_layout) {
  ASSERT_EQ(converted("tiles", stacks_, {.made_for = "cpu", .format = WeightFormat::q4c}), "");
  ASSERT_EQ(converted("rows", stacks_, {.made_for = "npu", .format = WeightFormat::q4c}), "");
  const auto expected = logits("tiles", {.device = "reference", .threads = 2});
  ASSERT_FALSE(expected.empty());
  for (const char* name : {"tiles", "rows"}) EXPECT_EQ(logits(name, {.device = "CPU", .threads = 2}), expected) << name;
}

// Its weights are finite; the numbers that it gives are not.
TEST_F(ExpertFolders, whose_router_overflows_answer_with_an_error_that_names_the_step) {
  for (float& x : named(stacks_, "layers.1.mlp.gate.weight").values) x = std::copysign(3e38f, x);
  ASSERT_EQ(converted("m", stacks_, {.format = WeightFormat::f32}), "");
  for (const char* device : {"CPU", "reference"}) {
    const auto target = load_executable(folder_ / "m", {.device = device, .threads = 2});
    ASSERT_TRUE(target) << target.error().message;
    const auto done = logits_in_segments(**target, golden_.ids, golden_.segments);
    ASSERT_FALSE(done) << device;
    EXPECT_EQ(done.error().code, Code::numerics) << device;
    EXPECT_THAT(done.error().message, AllOf(HasSubstr("L01/route"), HasSubstr("finite"))) << device;
  }
}

TEST(SharedExperts, that_lack_their_gate_or_are_of_another_width_are_named) {
  const auto golden = read_golden(std::filesystem::path(ONW_SOURCE_DIR) / "tests/goldens/qwen3_5_moe-g64.safetensors");
  ASSERT_TRUE(golden) << golden.error().message;
  const TempFolder folder;
  const auto says = [&](std::string_view left_out, const nlohmann::json& change) {
    SafetensorsBytes file;
    for (const TinyTensor& t : golden->tensors)
      if (left_out.empty() || t.name.find(left_out) == t.name.npos)
        file.add_f32(t.name, t.shape, tiny_tensor(*golden, t));
    auto config = nlohmann::json::parse(golden->config);
    config.update(change);
    folder.write("published/config.json", config.dump());
    folder.write("published/model.safetensors", file.bytes());
    const auto done = convert(folder / "published", folder / "m", {});
    EXPECT_FALSE(std::filesystem::exists(folder / "m.partial"));
    return done ? std::string() : done.error().message;
  };
  EXPECT_THAT(says("layers.1.mlp.shared_expert_gate.weight", nlohmann::json::object()),
              AllOf(HasSubstr("layers.1.mlp.shared_gate"), HasSubstr("mlp.shared_expert_gate.weight")));
  EXPECT_THAT(says("layers.0.mlp.shared_expert.up_proj", nlohmann::json::object()),
              HasSubstr("mlp.shared_expert.up_proj.weight"));
  EXPECT_THAT(says("", {{"shared_expert_intermediate_size", 320}}), HasSubstr("do not belong together"));
}

TEST_F(ExpertFolders, that_were_damaged_or_belong_to_another_config_are_refused) {
  ASSERT_EQ(converted("m", stacks_), "");
  const auto path = folder_ / "m" / "engine.json";
  const auto engine = read_json_file(path);
  const auto says = [&](const nlohmann::json& changed) {
    std::ofstream(path) << changed.dump();
    const auto model = open_model(folder_ / "m");
    return model ? std::string() : model.error().message;
  };
  EXPECT_EQ(says(*engine), "");
  auto other = *engine;
  other["experts"]["layers.0.experts"]["parts"][0]["codes"] = 64;
  EXPECT_THAT(says(other), HasSubstr("another order"));
  other = *engine;
  other["experts"]["layers.0.experts"]["parts"][0]["format"] = "q4c";
  EXPECT_NE(says(other), "");
  other = *engine;
  for (auto& part : other["experts"]["layers.0.experts"]["parts"])
    part["layout"] = part["layout"] == "tiles" ? "rows" : "tiles";  // of as many bytes
  EXPECT_THAT(says(other), AllOf(HasSubstr("layers.0.experts"), HasSubstr("was written as")));
  other = *engine;
  other["experts"].erase("layers.1.experts");
  EXPECT_THAT(says(other), HasSubstr("layers.1.experts.gate"));
  other = *engine;
  other["files"].erase("experts.safetensors");
  EXPECT_THAT(says(other), HasSubstr("experts.safetensors"));
  std::filesystem::resize_file(folder_ / "m" / "experts.safetensors", 50000);
  EXPECT_THAT(says(*engine), HasSubstr("experts.safetensors"));
}

// Codes and scales as gpt-oss is published, [experts, rows, groups, 16] and [experts, rows, groups], and the numbers
// that they stand for as its BF16 checkpoints have them, [experts, inputs, rows].
struct Fp4Stack {
  std::string blocks, scales;
  std::vector<float> values;
};

Fp4Stack fp4_stack(const std::vector<int64_t>& shape, uint32_t seed) {
  constexpr std::array kMagnitudes = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  const int64_t inputs = shape[1], rows = shape[2];
  Fp4Stack s{.blocks = {}, .scales = {}, .values = std::vector<float>(static_cast<size_t>(shape[0] * inputs * rows))};
  std::mt19937 random(seed);
  for (int64_t e = 0; e < shape[0]; ++e)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t g = 0; g < inputs / 32; ++g) {
        const int exponent = 122 + static_cast<int>(random() % 3);  // 2^-5 to 2^-3
        s.scales.push_back(static_cast<char>(exponent));
        for (int64_t i = 0; i < 32; ++i) {
          const uint32_t code = random() % 16;
          if (i % 2 == 0)
            s.blocks.push_back(static_cast<char>(code));
          else
            s.blocks.back() = static_cast<char>(static_cast<uint8_t>(s.blocks.back()) | code << 4);
          const float magnitude = std::ldexp(kMagnitudes[code & 7], exponent - 127);
          s.values[static_cast<size_t>((e * inputs + g * 32 + i) * rows + r)] = code > 7 ? -magnitude : magnitude;
        }
      }
  return s;
}

TEST(GptOssFolders, of_mxfp4_are_those_of_the_same_numbers_and_keep_their_codes) {
  const auto golden = read_golden(std::filesystem::path(ONW_SOURCE_DIR) / "tests/goldens/gpt_oss-g64.safetensors");
  ASSERT_TRUE(golden) << golden.error().message;
  const TempFolder folder;
  SafetensorsBytes plain, packed;
  for (const TinyTensor& t : golden->tensors) {
    if (t.shape.size() != 3) {
      for (SafetensorsBytes* file : {&plain, &packed}) file->add_f32(t.name, t.shape, tiny_tensor(*golden, t));
      continue;
    }
    const Fp4Stack s = fp4_stack(t.shape, static_cast<uint32_t>(t.name.size()));
    const int64_t groups = t.shape[1] / 32;
    plain.add_f32(t.name, t.shape, s.values);
    packed.add(t.name + "_blocks", "U8", {t.shape[0], t.shape[2], groups, 16}, s.blocks);
    packed.add(t.name + "_scales", "U8", {t.shape[0], t.shape[2], groups}, s.scales);
  }
  auto config = nlohmann::json::parse(golden->config);
  folder.write("plain/config.json", config.dump());
  folder.write("plain/model.safetensors", plain.bytes());
  config["quantization_config"] = {{"quant_method", "mxfp4"}};
  folder.write("packed/config.json", config.dump());
  folder.write("packed/model.safetensors", packed.bytes());
  const auto read = [&](const std::string& name) {
    std::ifstream in(folder / name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  for (const char* name : {"plain", "packed"}) {
    const auto done = convert(folder / name, folder / (std::string(name) + ".f32"), {.format = WeightFormat::f32});
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_THAT(done->unused, ::testing::IsEmpty());
  }
  EXPECT_EQ(read("plain.f32/experts.safetensors"), read("packed.f32/experts.safetensors"));

  const auto done = convert(folder / "packed", folder / "taken", {});
  ASSERT_TRUE(done) << done.error().message;
  for (const TensorReport& r : done->tensors)
    if (r.name.find(".experts.") != r.name.npos && !r.name.ends_with(".bias")) {
      EXPECT_EQ(name(r.format), "mxfp4") << r.name;
      EXPECT_TRUE(r.codes_exact) << r.name;
      EXPECT_EQ(r.relative_rms, 0) << r.name;
    }
  const auto logits = [&](const char* device) {
    const auto target = load_executable(folder / "taken", {.device = device, .threads = 2});
    EXPECT_TRUE(target) << target.error().message;
    return target ? logits_in_segments(**target, golden->ids, golden->segments).value() : std::vector<float>();
  };
  const auto expected = logits("reference");
  EXPECT_FALSE(expected.empty());
  EXPECT_EQ(logits("CPU"), expected);
}

}  // namespace
}  // namespace onw::testing
