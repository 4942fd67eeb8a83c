// The samples of a run, recorded while it continues, fails, rolls back and is resized.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <trireme/plan/data_plan.h>
#include <trireme/plan/mixture.h>
#include <trireme/train/ledger.h>

#include "../base/expect_error.h"

namespace trireme::ledger_test {
namespace {

using monitor::CommitRecord;
using monitor::ContinueRecord;
using plan::DataPosition;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// Walks through the data like a run, and can make errors on purpose.
struct Training {
  plan::DataPlanOptions data{.samples = 100, .batch = 16, .seed = 3};
  Ledger ledger;
  DataPosition at;
  int64_t step = 0, generation = 0;
  int world_size = 2;

  void go_on() { ledger.go_on({generation, step, at, data, {}}); }
  CommitRecord record(bool updated = true) {
    CommitRecord commit{generation, step + (updated ? 1 : 0),
                        at,         std::min(data.batch, data.samples - at.consumed),
                        {},         updated};
    for (int rank = 0; rank < world_size; ++rank) {
      const auto [first, last] = plan::DataPlan::share(commit.samples, rank, world_size);
      commit.shares.push_back(last - first);
    }
    return commit;
  }
  void take(bool updated = true) {
    ledger.commit(record(updated));
    if (updated) ++step;
    at = plan::DataPlan(data).next(at);
  }
  void take(int batches) {
    for (int i = 0; i < batches; ++i) take();
  }
};

TEST(Ledger, AnEmptyOneExpectsNothing) {
  EXPECT_EQ(Ledger().samples(), SampleCount());
  EXPECT_THAT(Ledger().errors(), IsEmpty());
}

TEST(Ledger, CountsEachSampleOfAnUndisturbedRunOnce) {
  Training training;
  training.go_on();
  // An epoch has 7 batches, the last of 4 samples.
  training.take(7 * 3 + 2);
  EXPECT_EQ(training.ledger.samples(), (SampleCount{332, 332, 0, 0}));
  EXPECT_EQ(training.ledger.finished_epochs(), 3);
  EXPECT_THAT(training.ledger.errors(), IsEmpty());
  EXPECT_THAT(training.ledger.to_json()["runs"], SizeIs(1)) << "one entry, however long";
}

TEST(Ledger, LeavesOutTheRestThatThePlanLeavesOut) {
  Training training;
  training.data.drop_last = true;
  training.go_on();
  training.take(6 * 2);
  EXPECT_EQ(training.ledger.samples(), (SampleCount{192, 192, 0, 0}));
  EXPECT_EQ(training.ledger.finished_epochs(), 2);
  EXPECT_THAT(training.ledger.to_json()["runs"], SizeIs(1));
}

TEST(Ledger, ContinuesAcrossFailuresAndChangesOfSize) {
  Training training;
  training.go_on();
  training.take(5);
  for (const int size : {1, 3, 2}) {
    ++training.generation;
    training.world_size = size;
    training.go_on();
    training.take(4);
  }
  EXPECT_EQ(training.ledger.samples(), (SampleCount{248, 248, 0, 0}));
  EXPECT_THAT(training.ledger.errors(), IsEmpty());
  EXPECT_THAT(training.ledger.to_json()["runs"], SizeIs(4));
}

TEST(Ledger, ASkippedBatchIsUsedButNoStep) {
  Training training;
  training.go_on();
  training.take(3);
  training.take(/*updated=*/false);
  training.take(4);
  EXPECT_EQ(training.step, 7);
  EXPECT_TRUE(training.ledger.samples().exactly_once());
  EXPECT_THAT(training.ledger.errors(), IsEmpty());
}

TEST(Ledger, ARollBackTakesBackLaterBatches) {
  Training training;
  training.go_on();
  training.take(4);
  const DataPosition saved = training.at;
  training.take(9);
  training.at = saved;
  training.step = 4;
  training.go_on();
  EXPECT_EQ(training.ledger.samples(), (SampleCount{64, 64, 0, 0}));
  EXPECT_FALSE(training.ledger.newest());
  training.take(10);
  EXPECT_EQ(training.ledger.samples(), (SampleCount{200, 200, 0, 0}));
  EXPECT_THAT(training.ledger.errors(), IsEmpty());
}

TEST(Ledger, ABatchThatIsMissingIsNamed) {
  Training training;
  training.go_on();
  training.take(2);
  training.at = plan::DataPlan(training.data).next(training.at);
  ++training.step;
  training.take(4);
  EXPECT_EQ(training.ledger.samples(), (SampleCount{100, 84, 16, 0}));
  const auto order = plan::DataPlan(training.data).global_batch({0, 32});
  EXPECT_THAT(training.ledger.errors(),
              ElementsAre(AllOf(HasSubstr("epoch 0: positions 32 to 47"),
                                HasSubstr(fmt::format("(samples {}, {},", order[0], order[1])),
                                HasSubstr("used by no step")),
                          HasSubstr("after step 2 comes step 4")));
}

TEST(Ledger, ABatchThatIsUsedTwiceIsNamedWithItsSteps) {
  Training training;
  training.go_on();
  training.take(3);
  training.at = {0, 16};
  training.take(6);
  EXPECT_EQ(training.ledger.samples(), (SampleCount{100, 68, 0, 32}));
  EXPECT_THAT(training.ledger.errors(),
              ElementsAre(AllOf(HasSubstr("epoch 0: positions 16 to 47"),
                                HasSubstr("used 2 times, by steps 2 and 4"))));
}

TEST(Ledger, AnEpochThatIsLeftEarlyLosesItsRest) {
  Training training;
  training.go_on();
  training.take(3);
  training.at = {2, 0};
  training.take(2);
  EXPECT_EQ(training.ledger.samples(), (SampleCount{232, 80, 152, 0}));
  EXPECT_THAT(training.ledger.errors(), ElementsAre(HasSubstr("epoch 0: positions 48 to 99"),
                                                    HasSubstr("epoch 1: positions 0 to 99")));
}

TEST(Ledger, ARankThatContributedLessLosesSamples) {
  Training training;
  training.go_on();
  CommitRecord commit = training.record();
  commit.shares = {8, 5};
  commit.samples = 13;
  training.ledger.commit(commit);
  training.at = {0, 16};
  training.step = 1;
  training.take(6);
  EXPECT_EQ(training.ledger.samples(), (SampleCount{100, 97, 3, 0}));
  EXPECT_THAT(training.ledger.errors(), ElementsAre(HasSubstr("positions 13 to 15")));
}

TEST(Ledger, AnotherBatchSizeHalfWayKeepsTheOrder) {
  Training training;
  training.go_on();
  training.take(3);
  training.data.batch = 10;
  training.go_on();
  training.take(6);
  EXPECT_EQ(training.ledger.samples(), (SampleCount{100, 100, 0, 0}));
  EXPECT_EQ(training.ledger.finished_epochs(), 1);
}

// Another seed half-way through an epoch gives another order, so samples that were used
// before may come again.
TEST(Ledger, AnotherSeedHalfWayIsFoundOut) {
  Training training;
  training.go_on();
  training.take(3);
  training.data.seed = 4;
  training.go_on();
  training.take(4);
  const SampleCount count = training.ledger.samples();
  EXPECT_EQ(count.expected, 100);
  EXPECT_GT(count.lost, 0);
  EXPECT_EQ(count.lost, count.repeated) << "each repeated one took another's place";
  EXPECT_THAT(training.ledger.errors(),
              ElementsAre(HasSubstr("used by no step"), HasSubstr("more than once")));
}

// Blocks of sizes that a record has as a digest alone.
plan::OrderOptions many_blocks() {
  std::vector<int64_t> sizes;
  for (int64_t block = 0; block < 600; ++block) sizes.push_back(block % 2 == 0 ? 1 : 0);
  plan::OrderOptions order = plan::OrderKind::blocks;
  order.blocks = plan::data_blocks(sizes);
  return order;
}

plan::OrderOptions mixed() {
  plan::OrderOptions order = plan::OrderKind::index;
  order.mixture = std::make_shared<const plan::Mixture>(plan::MixtureOptions{
      .sources = {{"a", 60, {}}, {"b", 90, {}}}, .weights = {{{}, {2, 1}}}, .samples = 100});
  return order;
}

TEST(Ledger, ProvesEachOrder) {
  plan::OrderOptions blocks = plan::OrderKind::blocks;
  blocks.blocks = plan::data_blocks({30, 30, 30, 10});
  for (const plan::OrderOptions& order :
       {plan::OrderOptions(plan::OrderKind::index), blocks, mixed(), plan::OrderOptions(false)}) {
    Training training;
    training.data.shuffle = order;
    training.go_on();
    training.take(9);
    training.ledger = Ledger::from_json(training.ledger.to_json(), "test");
    ++training.generation;
    training.world_size = 3;
    training.go_on();
    training.take(9);
    EXPECT_EQ(training.ledger.samples(), (SampleCount{264, 264, 0, 0}));
    EXPECT_THAT(training.ledger.errors(), IsEmpty());
    training.at = {2, 0};
    training.take(1);
    EXPECT_THAT(training.ledger.errors()[0],
                AllOf(HasSubstr("used 2 times"), HasSubstr("(samples ")));
  }
}

TEST(Ledger, RecordsTheOrdersOfTheFlagAsBefore) {
  Training training;
  training.go_on();
  EXPECT_EQ(training.ledger.to_json()["plans"].dump(), "[[100,16,3,true,false]]");
  training.data.shuffle = false;
  training.go_on();
  EXPECT_EQ(training.ledger.to_json()["plans"].dump(),
            "[[100,16,3,true,false],[100,16,3,false,false]]");
}

TEST(Ledger, OfAMixtureWhoseSeedChangesNamesWhatIsUsedTwice) {
  Training training;
  training.data.shuffle = mixed();
  training.go_on();
  training.take(4);
  training.data.seed = 4;
  training.go_on();
  training.take(3);
  EXPECT_GT(training.ledger.samples().repeated, 0);
  EXPECT_THAT(training.ledger.errors(), ElementsAre(HasSubstr("more than once")));
}

// A log without the sizes proves the places, but cannot compare two orders.
TEST(Ledger, KnowsTheLimitsOfADigest) {
  Training training;
  training.data.samples = 300;
  training.data.shuffle = many_blocks();
  training.go_on();
  training.take(3);
  const Json json = training.ledger.to_json();
  Ledger read = Ledger::from_json(json, "test");
  EXPECT_TRUE(read.samples().exactly_once());
  training.take(16);
  training.at = {0, 0};
  training.take(1);
  Ledger wrong = Ledger::from_json(training.ledger.to_json(), "test");
  EXPECT_THAT(wrong.errors(),
              ElementsAre(AllOf(HasSubstr("positions 0 to 15"), Not(HasSubstr("(samples")))));
  // The run itself has the sizes, also of an entry that it read.
  Training other;
  other.data = training.data;
  other.ledger = read;
  other.at = {0, 48};
  other.step = 3;
  other.data.seed = 8;
  other.go_on();
  other.take(16);
  EXPECT_THAT(other.ledger.errors(), ElementsAre(HasSubstr("by no step"), HasSubstr("than once")));
  Ledger blind = Ledger::from_json(other.ledger.to_json(), "test");
  EXPECT_FALSE(blind.samples().exactly_once());
  EXPECT_THAT(blind.errors(), ElementsAre(HasSubstr("only digests")));
}

TEST(Ledger, BegunHalfWayItExpectsLaterSamplesOnly) {
  Training training;
  training.at = {4, 48};
  training.step = 31;
  training.go_on();
  training.take(5);
  EXPECT_EQ(training.ledger.samples(), (SampleCount{68, 68, 0, 0}));
  EXPECT_EQ(training.ledger.begin(), (DataPosition{4, 48}));
}

TEST(Ledger, ComesBackFromJson) {
  Training training;
  training.go_on();
  training.take(9);
  ++training.generation;
  training.go_on();
  training.take(/*updated=*/false);
  const Json json = training.ledger.to_json();
  Training again = training;
  again.ledger = Ledger::from_json(json, "test");
  again.go_on();
  EXPECT_EQ(again.ledger.to_json(), json);
  EXPECT_EQ(again.ledger.newest(), training.ledger.newest());
  EXPECT_FALSE(again.ledger.newest()->updated);
  for (Training* each : {&training, &again}) each->take(10);
  EXPECT_EQ(again.ledger.samples(), training.ledger.samples());
  EXPECT_TRUE(again.ledger.samples().exactly_once());

  // The record carries the ledger.
  Training resumed = training;
  resumed.ledger = Ledger();
  resumed.ledger.go_on({1, training.step, training.at, training.data, training.ledger.to_json()});
  EXPECT_EQ(resumed.ledger.samples(), training.ledger.samples());
}

TEST(Ledger, RefusesJsonThatItDidNotMake) {
  Training training;
  training.go_on();
  training.take(3);
  const Json whole = training.ledger.to_json();
  const auto refused = [](const Json& json) {
    return message_of(ErrorCode::corrupt,
                      [&] { Ledger::from_json(json, "step-3/manifest.json"); });
  };
  EXPECT_THAT(refused(Json::array()), HasSubstr("step-3/manifest.json"));
  for (const char* part : {"begin", "plans", "runs"}) {
    Json json = whole;
    json.erase(part);
    refused(json);
  }
  Json json = whole;
  json["runs"][0][0] = 7;
  refused(json);
  json = whole;
  json["runs"][0][4] = {int64_t{1} << 50, 0};
  refused(json);
  json = whole;
  json["plans"][0][1] = 0;
  refused(json);
}

TEST(Ledger, RefusesRecordsThatNoPlanMakes) {
  Training training;
  EXPECT_THAT(message_of(ErrorCode::corrupt, [&] { training.take(); }),
              HasSubstr("before any record of where the run begins"));
  training.go_on();
  CommitRecord commit = training.record();
  commit.shares = {8, 9};
  EXPECT_THAT(message_of(ErrorCode::corrupt, [&] { training.ledger.commit(commit); }),
              HasSubstr("shares make 17"));
  commit.shares = {8, 8};
  for (const DataPosition wrong : {DataPosition{-1, 0}, DataPosition{0, 100}, DataPosition{0, -16},
                                   DataPosition{int64_t{1} << 40, 0}}) {
    commit.position = wrong;
    message_of(ErrorCode::corrupt, [&] { training.ledger.commit(commit); });
  }
  commit.position = {0, 96};
  EXPECT_THAT(message_of(ErrorCode::corrupt, [&] { training.ledger.commit(commit); }),
              HasSubstr("16 samples from position 96 of 100"));
}

}  // namespace
}  // namespace trireme::ledger_test
