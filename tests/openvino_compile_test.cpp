// Compiling into the store of blobs in child processes, by a library that does as it is told (tests/fake_openvino):
// what goes wrong there must not end the parent, and not spoil the store.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <random>
#include <thread>

#include "base/child_process.h"
#include "base/temp_folder.h"
#include "targets/openvino/compile_jobs.h"

namespace onw::openvino {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

fs::path beside_the_tests(const char* name) { return this_program().parent_path() / name; }

class OpenVinoCompile : public ::testing::Test {
 protected:
  void SetUp() override {
    told("");
    const auto runtime = Runtime::load(beside_the_tests("libfake_openvino.so"));
    ASSERT_TRUE(runtime) << runtime.error().message;
    setup_ = {.runtime = *runtime,
              .constants = &constants_,
              .model = "tiny",
              .weights_digest = "w",
              .device = "NPU",
              .platform = "GPU",  // one route
              .child = {beside_the_tests("compile_child").string()},
              .seconds = 20,
              .at_once = 2};
  }
  void TearDown() override { ::unsetenv("ONW_FAKE_OPENVINO"); }
  static void told(const std::string& script) { ::setenv("ONW_FAKE_OPENVINO", script.c_str(), 1); }

  std::vector<CompileJob> jobs(size_t count) {
    texts_.clear();
    for (size_t i = 0; i < count; ++i) texts_.push_back(fmt::format("<net number=\"{}\"/>", i));
    std::vector<CompileJob> all;
    for (size_t i = 0; i < count; ++i) all.push_back({.segment = fmt::format("body.{}", i), .xml = texts_[i]});
    return all;
  }

  Result<std::vector<Blob>> compile(const std::vector<CompileJob>& jobs, int* compiled = nullptr) {
    return compile_all(
        jobs, setup_, store_,
        [compiled](const CompileEvent& e) {
          if (compiled != nullptr && e.ended && !e.hit) ++*compiled;
        },
        cancel_);
  }

  std::string message_of_failure(const std::vector<CompileJob>& jobs) {
    const auto failed = compile(jobs);
    EXPECT_FALSE(failed);
    return failed ? "" : failed.error().message;
  }

  TempFolder folder_;
  BlobStore store_{folder_ / "blobs"};
  Constants constants_ = *Constants::create(WeightSet{});
  CompileSetup setup_;
  CancelToken cancel_;
  std::vector<std::string> texts_;
};

TEST_F(OpenVinoCompile, compiles_what_the_store_lacks_and_nothing_twice) {
  int compiled = 0;
  const auto all = jobs(3);
  const auto first = compile(all, &compiled);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(compiled, 3);
  EXPECT_EQ((*first)[1].record.segment, "body.1");
  EXPECT_EQ((*first)[1].record.bytes, 5000);
  EXPECT_TRUE(load_blob(all[2], (*first)[2], setup_, store_));
  told("compile=crash");
  const auto second = compile(all, &compiled);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(compiled, 3);
}

TEST_F(OpenVinoCompile, equal_graphs_are_compiled_once) {
  auto all = jobs(1);
  for (int i = 0; i < 3; ++i) all.push_back(all.front());
  int compiled = 0;
  const auto blobs = compile(all, &compiled);
  ASSERT_TRUE(blobs) << blobs.error().message;
  EXPECT_EQ(compiled, 1);
  EXPECT_EQ(blobs->size(), 4U);
  EXPECT_EQ((*blobs)[3].record.key, (*blobs)[0].record.key);
}

// npu-075
TEST_F(OpenVinoCompile, the_compilers_message_is_told_and_recorded_and_not_asked_for_again) {
  told("compile=fail");
  EXPECT_THAT(message_of_failure(jobs(1)),
              AllOf(HasSubstr("body.0 for 1 rows does not compile for GPU"), HasSubstr("Compiler returned an error")));
  told("");
  EXPECT_THAT(message_of_failure(jobs(1)), HasSubstr("Compiler returned an error"));
  setup_.again = true;
  EXPECT_TRUE(compile(jobs(1)));
  setup_.again = false;
  EXPECT_TRUE(compile(jobs(1)));
}

// npu-073
TEST_F(OpenVinoCompile, a_compiler_that_crashes_takes_nobody_along) {
  told("compile=crash");
  EXPECT_THAT(message_of_failure(jobs(1)), HasSubstr("the compiler crashed (Aborted)"));
  EXPECT_EQ(store_.entries()->front().ended, Ended::crashed);
}

// Two ways of 5010 differ for the head alone: for another graph they are one.
TEST_F(OpenVinoCompile, a_route_that_is_another_one_for_the_head_alone_is_tried_and_told_once) {
  setup_.platform = "5010";
  told("compile=fail");
  EXPECT_THAT(message_of_failure(jobs(1)),
              HasSubstr("for 5010: the plugin's compiler, the head profiled and the driver's compiler: "));
}

// npu-083
TEST_F(OpenVinoCompile, where_one_route_fails_the_next_is_taken_and_remembered) {
  setup_.platform = "4000";
  told("compile.PLUGIN=crash");
  const auto blobs = compile(jobs(1));
  ASSERT_TRUE(blobs) << blobs.error().message;
  EXPECT_EQ(blobs->front().record.route, "the driver's compiler");
  told("");
  int compiled = 0;
  EXPECT_EQ(compile(jobs(1), &compiled)->front().record.route, "the driver's compiler");
  EXPECT_EQ(compiled, 0);
}

TEST_F(OpenVinoCompile, what_takes_too_long_is_given_up_and_tried_again_with_more_time) {
  told("compile=slow");
  setup_.seconds = 0.3;
  EXPECT_THAT(message_of_failure(jobs(1)), HasSubstr("did not end within"));
  told("");
  EXPECT_FALSE(compile(jobs(1)));
  setup_.seconds = 20;
  EXPECT_TRUE(compile(jobs(1)));
}

TEST_F(OpenVinoCompile, memory_that_ran_out_beside_others_is_tried_alone) {
  for (const char* how : {"kill", "oom"}) {
    const auto mark = folder_ / how;
    told(fmt::format("compile={};compile.once={}", how, mark.string()));
    setup_.weights_digest = how;
    const auto blobs = compile(jobs(4));
    EXPECT_TRUE(blobs) << blobs.error().message;
    EXPECT_TRUE(fs::exists(mark));
  }
}

TEST_F(OpenVinoCompile, memory_that_ran_out_alone_is_an_error_of_its_own) {
  for (const char* how : {"kill", "oom"}) {
    told(fmt::format("compile={}", how));
    setup_.weights_digest = how;
    const auto failed = compile(jobs(1));
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, Code::out_of_memory) << how;
    EXPECT_EQ(store_.entries()->front().ended, Ended::out_of_memory) << how;
  }
}

// What it took is the measure of what must be free; and onw does not try for ever by itself.
TEST_F(OpenVinoCompile, memory_that_ran_out_is_tried_again_when_there_is_enough_and_three_times_at_most) {
  told("compile=oom");
  EXPECT_THAT(message_of_failure(jobs(1)), AllOf(HasSubstr("onw tries again at a start with "), HasSubstr("--again")));
  BlobRecord record = store_.entries()->front();
  EXPECT_GT(record.peak_bytes, 1'000'000) << "as the system counted it";
  const int64_t had = record.peak_bytes;
  record.peak_bytes = int64_t{1} << 50;
  ASSERT_TRUE(store_.add(record));
  told("");
  EXPECT_THAT(message_of_failure(jobs(1)), HasSubstr("known from an earlier try")) << "so much is not free";
  record.peak_bytes = had;
  ASSERT_TRUE(store_.add(record));
  told("compile=oom");
  for (int tries = 2; tries <= 3; ++tries) {
    (void)message_of_failure(jobs(1));
    EXPECT_EQ(store_.entries()->front().tries, tries);
  }
  told("");
  EXPECT_THAT(message_of_failure(jobs(1)),
              HasSubstr("tried 3 times: close other programs, then onw compile MODEL --again"));
  setup_.again = true;
  EXPECT_TRUE(compile(jobs(1)));
}

TEST_F(OpenVinoCompile, whoever_waits_for_another_process_is_told) {
  const auto all = jobs(1);
  std::string waits;
  const auto note = [&](const CompileEvent& e) {
    if (e.waits) waits = e.job.segment;
  };
  told("compile=slow");
  std::jthread other([&] { (void)compile_all(all, setup_, BlobStore(folder_ / "blobs"), {}, cancel_); });
  while (!fs::exists(folder_ / "blobs") || fs::is_empty(folder_ / "blobs")) std::this_thread::yield();
  std::jthread stopper([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    cancel_.cancel();
  });
  EXPECT_FALSE(compile_all(all, setup_, store_, note, cancel_));
  EXPECT_EQ(waits, "body.0");
}

// A verdict that the device computes something else is a reason to compile anew, where somebody asks for it.
TEST_F(OpenVinoCompile, what_computes_something_else_is_compiled_again_when_asked) {
  const auto blobs = compile(jobs(1));
  ASSERT_TRUE(blobs);
  ASSERT_TRUE(store_.note_self_check((*blobs)[0].record.key, {.passed = false, .rows = 16, .mean_kl = 9}));
  int compiled = 0;
  ASSERT_TRUE(compile(jobs(1), &compiled));
  EXPECT_EQ(compiled, 0);
  setup_.again = true;
  const auto again = compile(jobs(1), &compiled);
  ASSERT_TRUE(again);
  EXPECT_EQ(compiled, 1);
  EXPECT_FALSE((*again)[0].record.self_check);
}

TEST_F(OpenVinoCompile, without_a_compiler_it_says_what_to_install_and_does_not_remember_it) {
  told("says=Cannot load library /x/libopenvino_intel_npu_compiler_loader.so");
  EXPECT_THAT(message_of_failure(jobs(1)), HasSubstr("install Intel's package intel-driver-compiler-npu"));
  told("");
  EXPECT_TRUE(compile(jobs(1)));
}

TEST_F(OpenVinoCompile, a_folder_in_the_place_of_a_record_makes_way) {
  const auto blobs = compile(jobs(1));
  ASSERT_TRUE(blobs) << blobs.error().message;
  const auto record = folder_ / "blobs" / ((*blobs)[0].record.key + ".json");
  ASSERT_TRUE(std::filesystem::remove(record));
  std::filesystem::create_directory(record);
  int compiled = 0;
  const auto again = compile(jobs(1), &compiled);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(compiled, 1);
  EXPECT_TRUE(std::filesystem::is_regular_file(record));
}

// What the installation lacks may be there at the next start.
TEST_F(OpenVinoCompile, a_plugin_that_is_missing_or_does_not_load_is_told_and_not_remembered) {
  for (const char* says : {"says=Device with \"NPU\" name is not registered in the OpenVINO Runtime",
                           "says=Cannot load library \"/x/libopenvino_intel_npu_plugin.so\": invalid ELF header"}) {
    told(says);
    EXPECT_THAT(message_of_failure(jobs(1)), HasSubstr("install OpenVINO anew")) << says;
  }
  told("");
  EXPECT_TRUE(compile(jobs(1)));
}

// npu-080
TEST_F(OpenVinoCompile, a_store_that_cannot_be_written_is_no_reason_to_fail) {
  store_ = BlobStore("/proc/no/such/place");
  const auto blobs = compile(jobs(2));
  ASSERT_TRUE(blobs) << blobs.error().message;
  EXPECT_TRUE(load_blob(jobs(2)[1], (*blobs)[1], setup_, store_));
  setup_.must_store = true;
  const auto failed = compile(jobs(2));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::io);
  EXPECT_THAT(failed.error().message, HasSubstr("ONW_CACHE"));
}

// A file that may not grow stands for a full disk. The library itself does not notice: it would leave half a blob.
TEST_F(OpenVinoCompile, a_full_disk_is_an_error_that_leaves_nothing_half_done) {
  told("export.bytes=3000000");
  setup_.must_store = true;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small = {1 << 20, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  const auto failed = compile(jobs(2));
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::no_space);
  EXPECT_THAT(failed.error().message, HasSubstr("Free space, or let ONW_CACHE name a folder with more"));
  EXPECT_TRUE(store_.entries()->empty());
  EXPECT_TRUE(compile(jobs(2)));
}

TEST_F(OpenVinoCompile, a_damaged_blob_is_compiled_again) {
  const auto blobs = compile(jobs(1));
  ASSERT_TRUE(blobs);
  std::ofstream(folder_ / "blobs" / ((*blobs)[0].record.key + ".blob")) << "something else";
  EXPECT_FALSE(load_blob(jobs(1)[0], (*blobs)[0], setup_, store_));
  int compiled = 0;
  const auto again = compile(jobs(1), &compiled);
  ASSERT_TRUE(again);
  EXPECT_EQ(compiled, 1);
  EXPECT_TRUE(load_blob(jobs(1)[0], (*again)[0], setup_, store_));
}

TEST_F(OpenVinoCompile, another_release_of_OpenVINO_compiles_for_itself) {
  ASSERT_TRUE(compile(jobs(1)));
  told("version=2031.1.0");
  setup_.runtime = *Runtime::load(beside_the_tests("libfake_openvino.so"));
  int compiled = 0;
  ASSERT_TRUE(compile(jobs(1), &compiled));
  EXPECT_EQ(compiled, 1);
  EXPECT_EQ(store_.entries()->size(), 2U);
}

// Its constants are worth it, and of no type that plugins keep all the same.
CompileJob large(std::string_view xml = R"(<net><data size="4000000"/></net>)") {
  return {.segment = "body.0", .xml = xml};
}

TEST_F(OpenVinoCompile, blobs_leave_out_the_weights_where_the_plugin_can_and_load_with_the_text) {
  const std::vector<CompileJob> all = {large()};
  const auto blobs = compile(all);
  ASSERT_TRUE(blobs) << blobs.error().message;
  const BlobRecord& record = (*blobs)[0].record;
  EXPECT_TRUE(record.without_weights);
  EXPECT_EQ(record.route, "without weights");
  EXPECT_EQ(record.bytes, 700);
  EXPECT_FALSE(fs::exists(folder_ / "blobs" / (record.key + ".blob")));
  EXPECT_TRUE(load_blob(all[0], (*blobs)[0], setup_, store_));
  told("compile=crash");
  int compiled = 0;
  EXPECT_TRUE(compile(all, &compiled));
  EXPECT_EQ(compiled, 0) << "known";
  EXPECT_GT(*store_.prune(0), record.bytes);
  EXPECT_TRUE(fs::is_empty(folder_ / "blobs")) << "the folder goes with its record";
}

// Each with what the record then says, and what is taken instead.
TEST_F(OpenVinoCompile, a_plugin_that_keeps_the_weights_or_does_not_load_is_asked_once_and_kept_as_a_whole) {
  const std::pair<const char*, const char*> ways[] = {{"cache=whole", "holds the weights all the same"},
                                                      {"cache=none", "keeps nothing in its cache"},
                                                      {"cache=stale", "does not load"}};
  const std::vector<CompileJob> all = {large()};
  for (const auto& [script, says] : ways) {
    setup_.weights_digest = script;
    told(script);
    const auto blobs = compile(all);
    ASSERT_TRUE(blobs) << blobs.error().message;
    EXPECT_EQ((*blobs)[0].record.route, "as it is") << script;
    EXPECT_FALSE((*blobs)[0].record.without_weights);
    EXPECT_TRUE(load_blob(all[0], (*blobs)[0], setup_, store_));
    const auto records = *store_.entries();
    const auto refused = std::ranges::find(records, "without weights", &BlobRecord::route);
    ASSERT_NE(refused, records.end());
    EXPECT_EQ(refused->ended, Ended::refused);
    EXPECT_THAT(refused->message, HasSubstr(says));
    told("compile=crash");
    int compiled = 0;
    EXPECT_TRUE(compile(all, &compiled));
    EXPECT_EQ(compiled, 0) << script;
    fs::remove_all(folder_ / "blobs");
  }
}

TEST_F(OpenVinoCompile, graphs_of_four_bits_and_small_ones_are_compiled_with_their_weights_at_once) {
  for (const char* xml :
       {R"(<net><data element_type="i4" size="4000000"/></net>)", R"(<net><data size="400"/></net>)"}) {
    const std::vector<CompileJob> all = {large(xml)};
    ASSERT_TRUE(compile(all));
    EXPECT_EQ(store_.entries()->size(), 1U) << "no other way was tried";
    EXPECT_EQ(store_.entries()->front().route, "as it is");
    fs::remove_all(folder_ / "blobs");
  }
}

TEST_F(OpenVinoCompile, a_damaged_blob_without_weights_is_compiled_again) {
  const std::vector<CompileJob> all = {large()};
  const auto blobs = compile(all);
  ASSERT_TRUE(blobs);
  const auto kept = folder_ / "blobs" / ((*blobs)[0].record.key + ".weightless");
  for (const auto& file : fs::directory_iterator(kept)) std::ofstream(file.path()) << "something else";
  EXPECT_EQ(load_blob(all[0], (*blobs)[0], setup_, store_).error().code, Code::digest_mismatch);
  EXPECT_EQ(store_.items()->front().kind, BlobItem::Kind::damaged);
  int compiled = 0;
  const auto again = compile(all, &compiled);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(compiled, 1);
  EXPECT_TRUE(load_blob(all[0], (*again)[0], setup_, store_));
}

TEST_F(OpenVinoCompile, where_no_disk_takes_it_the_blob_in_memory_holds_the_weights) {
  store_ = BlobStore("/proc/no/such/place");
  const std::vector<CompileJob> all = {large()};
  const auto blobs = compile(all);
  ASSERT_TRUE(blobs) << blobs.error().message;
  EXPECT_EQ((*blobs)[0].record.route, "as it is");
  EXPECT_TRUE((*blobs)[0].why_not_stored);
  EXPECT_TRUE(load_blob(all[0], (*blobs)[0], setup_, store_));
}

TEST_F(OpenVinoCompile, stopping_ends_the_children_and_keeps_what_is_done) {
  ASSERT_TRUE(compile(jobs(1)));
  told("compile=slow");
  std::jthread stopper([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    cancel_.cancel();
  });
  const auto start = std::chrono::steady_clock::now();
  const auto stopped = compile(jobs(4));
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Code::cancelled);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(4));
  EXPECT_EQ(store_.entries()->size(), 1U);
}

TEST_F(OpenVinoCompile, processes_that_want_the_same_wait_for_the_first) {
  const auto all = jobs(2);
  std::atomic<int> compiled = 0;
  {
    std::vector<std::jthread> together;
    for (int i = 0; i < 3; ++i)
      together.emplace_back([&] {
        const auto count = [&](const CompileEvent& e) { compiled += e.ended && !e.hit ? 1 : 0; };
        EXPECT_TRUE(compile_all(all, setup_, BlobStore(folder_ / "blobs"), count, cancel_));
      });
  }
  EXPECT_EQ(compiled, 2);
}

// kill -9 at any moment: what the store then says it has is whole, and the next one goes on.
TEST_F(OpenVinoCompile, a_kill_at_any_moment_leaves_a_store_that_works) {
  const auto all = jobs(6);
  std::mt19937 random(7);
  for (int round = 0; round < 12; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      (void)compile(all);
      ::_exit(0);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(std::uniform_int_distribution(0, 60)(random)));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    const auto entries = store_.entries();
    ASSERT_TRUE(entries);
    for (const BlobRecord& record : *entries) {
      EXPECT_EQ(record.ended, Ended::compiled);
      EXPECT_TRUE(store_.open(record)) << "round " << round;
    }
    if (round % 4 == 3) fs::remove_all(folder_ / "blobs");
  }
  const auto blobs = compile(all);
  ASSERT_TRUE(blobs) << blobs.error().message;
  for (size_t i = 0; i < all.size(); ++i) EXPECT_TRUE(load_blob(all[i], (*blobs)[i], setup_, store_));
  for (const auto& item : fs::directory_iterator(folder_ / "blobs")) EXPECT_NE(item.path().extension(), ".partial");
}

}  // namespace
}  // namespace onw::openvino
