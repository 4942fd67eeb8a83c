#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/data/kinds/record_set.h>
#include <trireme/data/service/addresses.h>
#include <trireme/data/service/facts.h>
#include <trireme/data/service/reply_senders.h>
#include <functional>
#include <future>

#include "../base/expect_error.h"
#include "data_files.h"

namespace trireme::data {
namespace service_rules_tests {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(ServiceAddresses, AreNoneTheHostOrAddresses) {
  EXPECT_THAT(service_addresses("none"), ElementsAre());
  EXPECT_THAT(service_addresses("host"), ElementsAre("host"));
  EXPECT_THAT(service_addresses("a:1,[::1]:2"), ElementsAre("a:1", "[::1]:2"));
  for (const char* const wrong :
       {"hosts", "a", "a:0", "a:1,", ",a:1", "a:1,host", "a:70000", "a:1,a:1", "::1:5"})
    EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { service_addresses(wrong); }),
                HasSubstr("data.service is \""));
}

TEST(ServiceFacts, TheDifferenceNamesBothSides) {
  const Json here = {{"the stages", "flip"}, {"data.block", "128"}};
  EXPECT_EQ(difference(here, here), "");
  EXPECT_EQ(difference(here, {{"the stages", ""}, {"data.block", "128"}}),
            "the stages: \"flip\" here, \"\" at the server");
  EXPECT_EQ(difference(here, {{"the stages", "flip"}}),
            "data.block: \"128\" here, nothing at the server");
  EXPECT_THAT(difference(here, "text"), HasSubstr("nothing at the server"));
}

// The facts of the training part of numbers in a CSV file, with an option changed.
PartFacts facts_with(const Folder& folder, const std::function<void(DataOptions&)>& change) {
  DataOptions options;
  options.name = "csv";
  options.path = (folder.path() / "numbers.csv").string();
  options.test_fraction = 0.25;
  change(options);
  return facts_of_parts(read_record_set(options)).at(0);
}

TEST(ServiceFacts, ChangeWithAllThatDecidesAboutASampleAndWithNothingElse) {
  const Folder folder, other, longer;
  std::string rows = "a,b,label\n";
  for (int i = 0; i < 40; ++i) rows += std::to_string(i) + "," + std::to_string(i * i) + ",1\n";
  folder.write("numbers.csv", rows);
  other.write("numbers.csv", rows);
  const PartFacts plain = facts_with(folder, [](DataOptions&) {});
  EXPECT_EQ(plain.name, "train");
  EXPECT_EQ(plain.samples, 30);
  EXPECT_TRUE(plain.is_fixed);
  // Another folder, and keys that decide about no sample.
  EXPECT_EQ(facts_with(
                other,
                [](DataOptions& o) { o.service = "host", o.service_bytes = 1, o.cache_bytes = 5; })
                .digest,
            plain.digest);
  const std::pair<const char*, std::function<void(DataOptions&)>> changes[] = {
      {"the stages", [](DataOptions& o) { o.stages = "map(one)"; }},
      {"the fields", [](DataOptions& o) { o.target = "a"; }},
      {"the held-out part", [](DataOptions& o) { o.split_seed = 3; }},
      {"the number of samples", [](DataOptions& o) { o.test_fraction = 0.5; }},
      {"data.on_bad_record", [](DataOptions& o) { o.on_bad_record = "skip"; }},
      {"data.classes", [](DataOptions& o) { o.classes = 7; }}};
  for (const auto& [name, change] : changes) {
    const PartFacts changed = facts_with(folder, change);
    EXPECT_NE(changed.digest, plain.digest) << name;
    EXPECT_THAT(difference(changed.facts, plain.facts), HasSubstr(name));
  }
  longer.write("numbers.csv", rows + "1,2,0\n");
  EXPECT_NE(facts_with(longer, [](DataOptions&) {}).digest, plain.digest);
  EXPECT_FALSE(facts_with(folder, changes[0].second).is_fixed);
}

TEST(ServiceFacts, FunctionsOfStagesCountWithTheirLibrary) {
  const Folder folder;
  folder.write("numbers.csv", "a,b,label\n1,2,0\n3,4,1\n5,6,0\n7,8,1\n");
  const auto facts = [&](const std::string& stages) {
    return facts_with(folder, [&](DataOptions& o) { o.stages = stages; });
  };
  const PartFacts plain = facts(""), mapped = facts("map(one)"), filtered = facts("filter(one)");
  note_library(std::string(64, 'a'));
  EXPECT_EQ(facts("").digest, plain.digest);  // A library may have a model alone.
  for (const auto& [before, after] :
       {std::pair(mapped, facts("map(one)")), std::pair(filtered, facts("filter(one)"))}) {
    EXPECT_NE(before.digest, after.digest);
    EXPECT_THAT(difference(before.facts, after.facts),
                testing::ContainsRegex("model.library: \"(none|sha256 [^\"]*)\" here, "
                                       "\"sha256 .*aaaaaaaaaaaaaaaa.*\" at the server"));
  }
  const PartFacts first = facts("map(one)");
  note_library(std::string(64, 'b'));
  EXPECT_NE(facts("map(one)").digest, first.digest);
}

TEST(ServiceFacts, PacksCountWithTheirSizeAndWindow) {
  const Folder folder;
  std::string lines;
  for (int i = 0; i < 40; ++i)
    lines += R"({"tokens": [1, 2, 3]})"
             "\n";
  folder.write("documents.jsonl", lines);
  const auto facts = [&](const std::string& stages) {
    return facts_with(folder, [&](DataOptions& o) {
      o.name = "jsonl", o.path = (folder.path() / "documents.jsonl").string();
      o.stages = stages;
    });
  };
  const PartFacts packs = facts("pack(12)");
  EXPECT_EQ(packs.samples, 8);
  EXPECT_TRUE(packs.is_fixed);
  EXPECT_EQ(packs.longest, 0);
  for (const char* const stages : {"pack(15)", "pack(12, window=8)", "pack(12, long=split)"})
    EXPECT_THAT(difference(packs.facts, facts(stages).facts), HasSubstr("the packs")) << stages;
  EXPECT_EQ(facts("pad").longest, 3);
  EXPECT_THAT(difference(facts("pad").facts, facts("pad(multiple=8)").facts),
              HasSubstr("the stages"));
}

TEST(ReplySenders, AClientThatDoesNotReadHoldsUpNoOther) {
  ReplySenders senders(2);
  std::promise<void> reads;
  std::vector<std::promise<void>> sent(3);
  std::vector<int> order;
  senders.add("slow", [&] { reads.get_future().wait(), order.push_back(0); });
  for (int i = 0; i < 2; ++i)
    senders.add("slow",
                [&, i] { order.push_back(i + 1), sent[static_cast<size_t>(i)].set_value(); });
  senders.add("quick", [&] { sent[2].set_value(); });
  ASSERT_EQ(sent[2].get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
  reads.set_value();
  ASSERT_EQ(sent[1].get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
  EXPECT_THAT(order, ElementsAre(0, 1, 2));
}

}  // namespace service_rules_tests
}  // namespace trireme::data
