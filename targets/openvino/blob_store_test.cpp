#include "targets/openvino/blob_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <map>

#include "base/digest.h"
#include "base/temp_folder.h"
#include "store/weight_file.h"

namespace onw::openvino {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::SizeIs;

Constants constants_of(const std::vector<std::string>& texts) {
  auto constants = *Constants::create(WeightSet{});
  for (const std::string& text : texts) EXPECT_TRUE(constants.add(std::as_bytes(std::span(text))));
  return constants;
}

// A graph with one constant of four bytes, the one that `constants` got n-th.
std::string graph_with(size_t n) { return fmt::format(R"(<data offset="{}" size="4"/>)", 64 * n); }

BlobInput input(std::string_view xml, const Constants& constants) {
  return {.xml = xml,
          .constants = &constants,
          .weights_digest = "w",
          .openvino = "2026.4",
          .device = "NPU",
          .device_facts = {{"DRIVER", "1"}},
          .properties = {{"NPU_PLATFORM", "4000"}, {"NPU_TILES", "4"}}};
}

TEST(BlobKey, changes_with_everything_that_a_compiled_graph_depends_on) {
  const Constants constants = constants_of({"aaaa"});
  const std::string xml = graph_with(0), other = graph_with(0) + " ";
  const std::string key = blob_key(input(xml, constants));
  EXPECT_EQ(blob_key(input(xml, constants)), key);
  EXPECT_NE(blob_key(input(other, constants)), key);
  const std::vector<std::function<void(BlobInput&)>> changes = {
      [](BlobInput& i) { i.weights_digest = "x"; },
      [](BlobInput& i) { i.openvino = "2026.5"; },
      [](BlobInput& i) { i.device = "GPU"; },
      [](BlobInput& i) { i.device_facts[0].second = "2"; },
      [](BlobInput& i) { i.device_facts.clear(); },
      [](BlobInput& i) { i.properties[0].second = "3720"; },
      [](BlobInput& i) { i.properties[1].second = "2"; },
      [](BlobInput& i) { i.properties.emplace_back("PERF_COUNT", "YES"); },
  };
  for (size_t n = 0; n < changes.size(); ++n) {
    BlobInput changed = input(xml, constants);
    changes[n](changed);
    EXPECT_NE(blob_key(changed), key) << n;
  }
}

TEST(BlobKey, does_not_depend_on_the_order_of_properties) {
  const Constants constants = constants_of({"aaaa"});
  const std::string xml = graph_with(0);
  BlobInput turned = input(xml, constants);
  std::swap(turned.properties[0], turned.properties[1]);
  EXPECT_EQ(blob_key(turned), blob_key(input(xml, constants)));
}

// What was lowered before a graph moves its small constants, and changes nothing in it.
TEST(BlobKey, takes_small_constants_by_their_bytes_and_not_by_their_place) {
  const Constants alone = constants_of({"aaaa"}), behind = constants_of({"bbbb", "aaaa"});
  const std::string first = graph_with(0), second = graph_with(1);
  EXPECT_EQ(blob_key(input(first, alone)), blob_key(input(second, behind)));
  EXPECT_NE(blob_key(input(first, alone)), blob_key(input(first, behind)));
}

// Two layers of one form differ in their weights, which lie at other offsets of the file.
TEST(BlobKey, equal_layers_with_other_weights_are_not_equal_graphs) {
  TempFolder folder;
  const auto path = folder.write("w", std::string(8192, 'w'));
  const auto file = MappedFile::open(path);
  WeightSet weights;
  weights.files = {{path, file->bytes()}};
  const auto constants = Constants::create(weights);
  ASSERT_TRUE(constants);
  const std::string first = graph_with(0), second = graph_with(1);
  EXPECT_NE(blob_key(input(first, *constants)), blob_key(input(second, *constants)));
}

class BlobStoreOn : public ::testing::Test {
 protected:
  // As if a child had written it.
  BlobRecord added(const std::string& key, const std::string& blob, const BlobStore& store) const {
    EXPECT_TRUE(store.try_lock(key)->held());
    std::ofstream(store.partial(key), std::ios::binary) << blob;
    const BlobRecord record{.key = key,
                            .model = "tiny",
                            .segment = "body.0",
                            .device = "NPU",
                            .route = "as it is",
                            .rows = 16,
                            .seconds = 1.5,
                            .bytes = static_cast<int64_t>(blob.size()),
                            .digest = sha256_hex(std::as_bytes(std::span(blob)))};
    const auto done = store.add(record);
    EXPECT_TRUE(done) << done.error().message;
    return record;
  }
  TempFolder folder_;
  BlobStore store_{folder_ / "blobs"};
};

TEST_F(BlobStoreOn, gives_back_what_was_added_with_its_record) {
  EXPECT_FALSE(store_.find("k"));
  added("k", "the blob", store_);
  const auto record = store_.find("k");
  ASSERT_TRUE(record);
  EXPECT_EQ(record->model, "tiny");
  EXPECT_EQ(record->rows, 16);
  EXPECT_EQ(record->seconds, 1.5);
  const auto blob = store_.open(*record);
  ASSERT_TRUE(blob) << blob.error().message;
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(blob->bytes().data()), blob->bytes().size()), "the blob");
  EXPECT_FALSE(fs::exists(store_.partial("k")));
}

// A device answers with nonsense where a weight in it has changed.
TEST_F(BlobStoreOn, a_byte_that_changed_anywhere_is_told) {
  const std::string written(300'000, 'w');
  const BlobRecord record = added("k", written, store_);
  ASSERT_TRUE(store_.open(record));
  for (const size_t at : {size_t{0}, size_t{131'071}, size_t{200'001}, written.size() - 1}) {
    std::string damaged = written;
    damaged[at] = 'x';
    std::ofstream(folder_ / "blobs/k.blob", std::ios::binary) << damaged;
    EXPECT_EQ(store_.open(record).error().code, Code::digest_mismatch) << at;
  }
}

TEST_F(BlobStoreOn, a_blob_that_is_not_what_was_written_is_told) {
  const BlobRecord record = added("k", "the blob", store_);
  std::ofstream(folder_ / "blobs/k.blob", std::ios::binary) << "the bloB";
  EXPECT_EQ(store_.open(record).error().code, Code::digest_mismatch);
  fs::resize_file(folder_ / "blobs/k.blob", 3);
  EXPECT_EQ(store_.open(record).error().code, Code::digest_mismatch);
  fs::remove(folder_ / "blobs/k.blob");
  EXPECT_EQ(store_.open(record).error().code, Code::not_found);
}

TEST_F(BlobStoreOn, a_record_that_is_damaged_or_of_another_version_is_none) {
  added("k", "the blob", store_);
  for (const char* text : {"", "{", "[]", "{}", R"({"version": 999, "ended": "compiled"})",
                           R"({"version": 1, "ended": "dreamt"})", R"({"version": "1", "ended": "compiled"})"}) {
    std::ofstream(folder_ / "blobs/k.json") << text;
    EXPECT_FALSE(store_.find("k")) << text;
    EXPECT_THAT(*store_.entries(), SizeIs(0)) << text;
  }
  std::ofstream(folder_ / "blobs/k.json") << R"({"version": 1, "ended": "compiled", "rows": "many", "self_check": 3})";
  EXPECT_TRUE(store_.find("k"));  // and its blob does not have these bytes
  EXPECT_FALSE(store_.open(*store_.find("k")));
}

TEST_F(BlobStoreOn, the_result_of_a_self_check_stays_with_the_blob) {
  added("k", "the blob", store_);
  ASSERT_TRUE(store_.note_self_check("k", {.passed = true, .rows = 16, .mean_kl = 0.002, .same_first = 15}));
  const auto record = store_.find("k");
  ASSERT_TRUE(record && record->self_check);
  EXPECT_TRUE(record->self_check->passed);
  EXPECT_EQ(record->self_check->mean_kl, 0.002);
  EXPECT_EQ(record->self_check->same_first, 15);
  EXPECT_TRUE(store_.open(*record));
  EXPECT_EQ(store_.note_self_check("none", {}).error().code, Code::not_found);
}

// npu-081
TEST_F(BlobStoreOn, prunes_what_was_used_longest_ago_and_what_belongs_to_nothing) {
  for (const char* key : {"a", "b", "c"}) {
    added(key, std::string(1000, '.'), store_);
    const auto age = std::chrono::hours(key[0] == 'b' ? 9 : 1);
    fs::last_write_time(folder_ / "blobs" / (std::string(key) + ".json"), fs::file_time_type::clock::now() - age);
  }
  std::ofstream(folder_ / "blobs/d.blob") << "without a record";
  std::ofstream(store_.partial("e")) << "half of";
  std::ofstream(store_.partial("f")) << "being written";
  const auto busy = store_.try_lock("f");
  EXPECT_GE(*store_.prune(2000), 1000);
  const auto left = *store_.entries();
  EXPECT_THAT(left, SizeIs(2));
  EXPECT_FALSE(store_.find("b"));
  EXPECT_FALSE(fs::exists(folder_ / "blobs/d.blob"));
  EXPECT_FALSE(fs::exists(store_.partial("e")));
  EXPECT_TRUE(fs::exists(store_.partial("f")));
}

// A record that is being written lies beside its key under another name: another process must not clear it away.
TEST_F(BlobStoreOn, leaves_alone_a_record_that_is_just_written) {
  added("k", "the blob", store_);
  const auto half = folder_ / "blobs/k.json.partial";
  std::ofstream(half) << "{";
  {
    const auto writing = store_.try_lock("k");
    (void)store_.prune(1 << 20);
    EXPECT_TRUE(fs::exists(half));
  }
  (void)store_.prune(1 << 20);
  EXPECT_FALSE(fs::exists(half)) << "nobody writes any more";
  EXPECT_TRUE(store_.find("k"));
}

// Whatever lies in the folder is shown as what it is, with its size on the disk and not the one that it claims.
TEST_F(BlobStoreOn, shows_what_is_whole_damaged_and_not_its_own) {
  for (const char* key : {"whole", "short", "lost"}) added(key, std::string(1000, '.'), store_);
  fs::resize_file(folder_ / "blobs/short.blob", 10);
  fs::remove(folder_ / "blobs/lost.blob");
  std::ofstream(folder_ / "blobs/negative.json") << R"({"version": 1, "ended": "compiled", "bytes": -5})";
  std::ofstream(folder_ / "blobs/orphan.blob") << "without a record";
  std::ofstream(folder_ / "blobs/holiday.jpg") << std::string(77, 'x');
  fs::create_directories(folder_ / "blobs/folder");
  std::ofstream(folder_ / "blobs/folder/file") << std::string(33, 'x');
  std::map<std::string, std::pair<BlobItem::Kind, std::string>> seen;
  int64_t foreign = 0;
  const auto items = store_.items();
  ASSERT_TRUE(items);
  for (const BlobItem& item : *items) {
    seen[item.name] = {item.kind, item.trouble};
    EXPECT_GE(item.bytes, 0) << item.name;
    if (item.kind == BlobItem::Kind::foreign) foreign += item.bytes;
  }
  constexpr auto damaged = BlobItem::Kind::damaged;
  EXPECT_THAT(seen, ElementsAre(Pair("folder", Pair(BlobItem::Kind::foreign, "nothing of onw's")),
                                Pair("holiday.jpg", Pair(BlobItem::Kind::foreign, "nothing of onw's")),
                                Pair("lost", Pair(damaged, "its file is missing")),
                                Pair("negative.json", Pair(damaged, "its record cannot be read")),
                                Pair("orphan.blob", Pair(damaged, "without a record")),
                                Pair("short", Pair(damaged, "not as long as it was written")),
                                Pair("whole", Pair(BlobItem::Kind::whole, ""))));
  EXPECT_EQ(foreign, 77 + 33);
  EXPECT_GT(*store_.remove_if([](const BlobItem& item) { return item.kind != BlobItem::Kind::whole; }), 110);
  EXPECT_THAT(*store_.items(), SizeIs(1));
}

// Nobody will use them: of a model that is gone, or of another OpenVINO. Even so they stay for a while, because a disk
// may come back and a release be put back.
TEST_F(BlobStoreOn, prunes_what_nobody_will_use_after_thirty_days) {
  const auto model = folder_ / "model";
  fs::create_directories(model);
  for (const char* key : {"old", "new"}) {
    BlobRecord record = added(key, "blob", store_);
    record.openvino = "2026.4";
    record.model_folder = model.string();
    std::ofstream(store_.partial(key), std::ios::binary) << "blob";
    ASSERT_TRUE(store_.add(record));
  }
  const auto age = [&](const char* key, int days) {
    fs::last_write_time(folder_ / "blobs" / (std::string(key) + ".json"),
                        fs::file_time_type::clock::now() - std::chrono::hours(24 * days));
  };
  age("old", 40);
  constexpr int64_t kMuch = 1 << 20;
  EXPECT_EQ(*store_.prune(kMuch, "2026.4"), 0) << "both are of use";
  EXPECT_EQ(why_unused(*store_.find("old"), "2027.1"), "of another OpenVINO");
  EXPECT_EQ(why_unused(*store_.find("old"), ""), "");
  EXPECT_GT(*store_.prune(kMuch, "2027.1"), 0);
  EXPECT_FALSE(store_.find("old"));
  EXPECT_TRUE(store_.find("new"));
  fs::remove_all(model);
  EXPECT_EQ(why_unused(*store_.find("new"), ""), "its model is gone");
  EXPECT_EQ(*store_.prune(kMuch), 0) << "not for so long";
  age("new", 31);
  EXPECT_GT(*store_.prune(kMuch), 0);
}

TEST_F(BlobStoreOn, what_did_not_compile_has_a_record_and_no_blob) {
  (void)store_.try_lock("k");
  ASSERT_TRUE(store_.add({.key = "k", .ended = Ended::timed_out, .message = "too slow", .limit_seconds = 60}));
  const auto record = store_.find("k");
  ASSERT_TRUE(record);
  EXPECT_EQ(record->ended, Ended::timed_out);
  EXPECT_EQ(record->message, "too slow");
  EXPECT_EQ(record->limit_seconds, 60);
  EXPECT_FALSE(store_.open(*record));
}

}  // namespace
}  // namespace onw::openvino
