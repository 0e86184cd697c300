#include "cli/flags.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "base/version.h"
#include "cli/commands.h"

namespace onw::cli {
namespace {

using testing::HasSubstr;

const Command kServe{"serve", "Serves", "", {{"MODEL", "What answers"}}, nullptr};
const Command kBench{"bench", "Times", "", {{"MODEL", "What is timed"}}, nullptr};
const Command kChat{"chat", "Talks", "", {{"MODEL", "What answers", false}}, nullptr};

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

std::string source(const char* name) {
  std::ifstream file(std::string(ONW_SOURCE_DIR) + "/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string complaint(const Command& command, const std::vector<std::string>& words) {
  const auto args = parse(command, words);
  if (args) return "no complaint";
  EXPECT_EQ(args.error().code, Code::usage);
  return args.error().message;
}

TEST(Flags, take_choices_in_any_case) {
  EXPECT_EQ((*parse(kServe, {"model", "--device", "OpenVINO:cpu"}))->text("--device"), "openvino:CPU");
  const Variable variable("ONW_DEVICE", "npu");
  const auto args = parse(kServe, {"model"});
  ASSERT_TRUE(args) << args.error().message;
  EXPECT_EQ((*args)->text("--device"), "NPU");
  EXPECT_THAT(complaint(kServe, {"model", "--device", "toaster"}), HasSubstr("'toaster' is not one of NPU, GPU"));
  EXPECT_EQ(*choice_of("--device", "chat", "gpu"), "GPU");
  EXPECT_FALSE(choice_of("--device", "chat", "gpus"));
}

TEST(Flags, give_what_was_typed_then_the_environment_then_the_default) {
  auto args = parse(kServe, {"model"});
  ASSERT_TRUE(args.has_value());
  EXPECT_EQ((*args)->integer("--port"), 8000);
  EXPECT_EQ((*args)->text("--host"), "localhost");
  EXPECT_FALSE((*args)->has("--api-key"));
  const Variable port("ONW_PORT", "9001");
  EXPECT_EQ((*parse(kServe, {"model"}))->integer("--port"), 9001);
  EXPECT_EQ((*parse(kServe, {"model", "--port", "9002"}))->integer("--port"), 9002);
  EXPECT_EQ((*parse(kServe, {"--port=9003", "model"}))->positional(0), "model");
}

TEST(Flags, refuse_values_out_of_range_and_name_where_they_came_from) {
  EXPECT_THAT(complaint(kServe, {"m", "--port", "70000"}),
              HasSubstr("--port: '70000' is not a whole number from 0 to"));
  EXPECT_THAT(complaint(kServe, {"m", "--port", "80x"}), HasSubstr("'80x'"));
  EXPECT_THAT(complaint(kServe, {"m", "--device", "gpu9"}),
              HasSubstr("'gpu9' is not one of NPU, GPU, CPU, openvino:CPU, reference"));
  EXPECT_THAT(complaint(kChat, {"m", "--temperature", "2.5"}), HasSubstr("'2.5' is not a number from 0 to 2"));
  EXPECT_THAT(complaint(kChat, {"m", "--top-p", "0"}), HasSubstr("'0' is not a number above 0, at most 1"));
  const Variable port("ONW_PORT", "many");
  EXPECT_THAT(complaint(kServe, {"m"}), HasSubstr("ONW_PORT: 'many'"));
}

TEST(Flags, mean_what_their_command_says) {
  const auto bench = parse(kBench, {"m", "--prompt", "64,512,1"});
  ASSERT_TRUE(bench.has_value());
  EXPECT_EQ((*bench)->integers("--prompt"), (std::vector<int64_t>{64, 512, 1}));
  EXPECT_THAT(complaint(kBench, {"m", "--prompt", "64,,1"}), HasSubstr("''"));
  const auto chat = parse(kChat, {"m", "--prompt", "-5 and 3?", "--temperature", "0", "--think"});
  ASSERT_TRUE(chat.has_value());
  EXPECT_EQ((*chat)->text("--prompt"), "-5 and 3?");
  EXPECT_EQ((*chat)->number("--temperature"), 0);
  EXPECT_TRUE((*chat)->has("--think"));
}

TEST(Flags, complain_about_words_that_are_missing_unknown_or_too_many) {
  EXPECT_THAT(complaint(kServe, {}), HasSubstr("MODEL is missing. Usage: onw serve MODEL"));
  EXPECT_THAT(complaint(kServe, {"a", "b"}), HasSubstr("'b' is one word too many"));
  EXPECT_EQ(complaint(kServe, {"a", "--prot", "1"}),
            "onw serve has no flag --prot. Did you mean --port? See: onw serve --help");
  EXPECT_EQ(complaint(kServe, {"a", "--frobnicate=1"}), "onw serve has no flag --frobnicate. See: onw serve --help");
  EXPECT_EQ(complaint(kServe, {"--dot", "a"}), "--dot is no flag of onw serve, but of: inspect. See: onw serve --help");
  EXPECT_EQ(complaint(kServe, {"a", "-v"}), "onw serve has no flag -v. See: onw serve --help");
  EXPECT_THAT(complaint(kServe, {"a", "--port"}), HasSubstr("--port"));
  EXPECT_TRUE(parse(kChat, {}).has_value());
}

TEST(Flags, help_is_asked_for_anywhere_but_after_two_dashes) {
  EXPECT_FALSE(parse(kServe, {"a", "--help"})->has_value());
  EXPECT_TRUE(parse(kServe, {"--", "--help"})->has_value());
  EXPECT_EQ((*parse(kServe, {"--", "-h"}))->positional(0), "-h");
}

TEST(Flags, defaults_pass_their_own_checks_and_names_are_unique_per_command) {
  std::set<std::string> seen;
  for (const Flag& flag : all_flags()) {
    EXPECT_EQ(flag.name.substr(0, 2), "--");
    std::istringstream commands{std::string(flag.commands)};
    for (std::string command; commands >> command;) {
      EXPECT_TRUE(seen.insert(command + std::string(flag.name)).second) << command << " has two " << flag.name;
      const Command it{command, "", "", {}, nullptr};
      EXPECT_TRUE(parse(it, {}).has_value()) << flag.name;
    }
  }
}

TEST(Flags, every_command_of_the_table_exists_in_the_help) {
  const std::string text = help(all_commands());
  for (const auto& command : all_commands()) EXPECT_THAT(text, HasSubstr(std::string(command.name)));
}

TEST(Docs, of_the_commands_are_what_the_table_makes) {
  EXPECT_TRUE(source("docs/cli.md") == help_markdown(all_commands())) << "run: onw --help-markdown > docs/cli.md";
}

TEST(Version, is_the_one_of_the_build) {
  EXPECT_THAT(source("CMakeLists.txt"), HasSubstr(std::string("project(onw VERSION ") + kVersion));
}

}  // namespace
}  // namespace onw::cli
