#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <trireme/plan/bucketing.h>
#include <trireme/plan/mixture.h>
#include <trireme/plan/sample_order.h>
#include <trireme/train/data_facts.h>

#include "../base/expect_error.h"

namespace trireme::data_facts_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const Json kDigits = {{"data.name", "digits"},     {"data.content", "xxh3:1"},
                      {"data.split_seed", "7"},    {"data.test_fraction", "0.2"},
                      {"data.shuffle", "true"},    {"data.batch", "64"},
                      {"data.drop_last", "false"}, {"optimizer.lr", "0.1"}};

Json with(Json config, const char* key, const char* value) {
  config[key] = value;
  return config;
}
Json without(Json config, const char* key) {
  config.erase(key);
  return config;
}
std::string refused(const Json& was, const Json& now) {
  return message_of(ErrorCode::invalid_argument, [&] { require_same_data(was, now); });
}

TEST(DataFacts, OfTheSameDataAgree) {
  EXPECT_NO_THROW(require_same_data(kDigits, kDigits));
  EXPECT_NO_THROW(require_same_data(Json(), Json()));
}

TEST(DataFacts, MayDifferInKeysThatDoNotChooseSamples) {
  for (const char* key : {"data.batch", "data.drop_last", "data.classes", "optimizer.lr"})
    EXPECT_NO_THROW(require_same_data(kDigits, with(kDigits, key, "other"))) << key;
}

TEST(DataFacts, ThatDifferAreNamedWithBothValues) {
  EXPECT_THAT(
      refused(kDigits, with(with(kDigits, "data.split_seed", "8"), "data.shuffle", "false")),
      AllOf(HasSubstr("data.split_seed is 8 now and was 7"),
            HasSubstr("data.shuffle is false now and was true"), HasSubstr("--fresh")));
}

TEST(DataFacts, TellWhetherSamplesWereHeldOut) {
  EXPECT_THAT(refused(kDigits, without(kDigits, "data.test_fraction")),
              HasSubstr("data.test_fraction is not in use now and was 0.2"));
  EXPECT_THAT(refused(without(kDigits, "data.test_fraction"), kDigits),
              HasSubstr("data.test_fraction is 0.2 now and was not in use"));
}

TEST(ChangesOfInput, NameTheStagesWithBothValues) {
  const Json old = with(kDigits, "data.stages", "decode");
  EXPECT_TRUE(changes_of_input(old, old).empty());
  EXPECT_TRUE(changes_of_input(Json(), old).empty());
  const auto changes = changes_of_input(old, with(old, "data.stages", "decode | flip"));
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0],
            "data.stages is \"decode | flip\" now and was \"decode\" in the checkpoint");
}

TEST(ChangesOfInput, AreThoseOfSourcesToo) {
  const auto input = [](const char* stages) {
    Json config = kDigits;
    config[kInputPlan] = {
        {"digest", stages},
        {"sets", {"mixture", std::string("source 1: image_folder; stages: ") + stages}}};
    return config;
  };
  EXPECT_TRUE(changes_of_input(input("decode"), input("decode")).empty());
  const auto changes = changes_of_input(input("decode"), input("flip"));
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_THAT(changes[0], AllOf(HasSubstr("the input is \"source 1"), HasSubstr("stages: flip"),
                                HasSubstr("stages: decode")));
  // Checkpoints of earlier versions have no plan, and a run may continue with another one.
  EXPECT_TRUE(changes_of_input(kDigits, input("flip")).empty());
  EXPECT_NO_THROW(require_same_data(input("decode"), input("flip")));
}

// Large data sets had another order in earlier versions. A programme of one's own may have no
// digest of its content.
TEST(DataFacts, OfAnotherOrderDifferAlsoWithoutADigestOfTheContent) {
  const Json plain = {{"data.shuffle", "true"}}, keyed = with(plain, "data.order", "keyed");
  EXPECT_NO_THROW(require_same_data(keyed, keyed));
  EXPECT_THAT(refused(plain, keyed), HasSubstr("data.order is keyed now and was not in use"));
  EXPECT_THAT(refused(keyed, plain), HasSubstr("data.order is not in use now and was keyed"));
}

Json facts_of(const plan::OrderOptions& order, int64_t samples = 100) {
  Json config = {{"data.shuffle", "?"}, {"data.window", "4096"}};
  put_order(config, order, samples);
  return config;
}

// Checkpoints of earlier versions have these keys.
TEST(DataFacts, OfTheOrdersThatWereAFlagStay) {
  EXPECT_EQ(facts_of(true), (Json{{"data.shuffle", "true"}}));
  EXPECT_EQ(facts_of(false), (Json{{"data.shuffle", "false"}}));
  EXPECT_EQ(facts_of(true, plan::kLargestOrderTable + 1),
            (Json{{"data.shuffle", "true"}, {"data.order", "keyed"}}));
  EXPECT_EQ(facts_of(plan::OrderKind::index), (Json{{"data.shuffle", "index"}}));
}

TEST(DataFacts, TellAnotherOrder) {
  plan::OrderOptions blocks = plan::OrderKind::blocks;
  blocks.blocks = plan::data_blocks({60, 40});
  plan::OrderOptions others = blocks, wider = blocks, mixed = true, bucketed = true;
  others.blocks = plan::data_blocks({50, 50});
  wider.window = 9;
  mixed.mixture = std::make_shared<const plan::Mixture>(
      plan::MixtureOptions{.sources = {{"a", 60, {}}}, .weights = {{{}, {2}}}});
  bucketed.by_length = std::make_shared<const plan::LengthBatches>(
      plan::LengthBatches{.content = "words", .batch = 4});
  EXPECT_NO_THROW(require_same_data(facts_of(blocks), facts_of(blocks)));
  EXPECT_THAT(refused(facts_of(blocks), facts_of(others)), HasSubstr("data.order is 2 blocks"));
  // Earlier versions took several plain files for one block.
  EXPECT_THAT(refused(facts_of(plan::OrderKind::blocks), facts_of(blocks)),
              HasSubstr("now and was not in use"));
  EXPECT_THAT(refused(facts_of(blocks), facts_of(wider)),
              HasSubstr("data.window is 9 now and was 4096"));
  EXPECT_THAT(refused(facts_of(true), facts_of(mixed)),
              HasSubstr("data.order is mixture of 1 sources"));
  EXPECT_THAT(refused(facts_of(true), facts_of(bucketed)),
              HasSubstr("data.order is batches of 4 by length in windows of 100 (words) now"));
  EXPECT_THAT(refused(facts_of(plan::OrderKind::index), facts_of(true)),
              HasSubstr("data.shuffle is true now and was index"));
}

TEST(DataFacts, TellOtherContentUnderTheSameKeys) {
  EXPECT_THAT(refused(kDigits, with(kDigits, "data.content", "xxh3:2")),
              AllOf(HasSubstr("data.path holds other samples"), HasSubstr("xxh3:2 now"),
                    HasSubstr("was xxh3:1")));
  const Json idx = with(kDigits, "data.name", "idx");
  EXPECT_THAT(refused(idx, with(idx, "data.content", "xxh3:2")), HasSubstr("data.images"));
}

TEST(DataFacts, TellOtherContentOfADataSetThatAProgrammeHasRegistered) {
  const Json own = with(with(kDigits, "data.name", "ramp"), "data.content", "long.csv");
  EXPECT_NO_THROW(require_same_data(own, own));
  EXPECT_THAT(
      refused(own, with(own, "data.content", "short.csv")),
      HasSubstr("the data set ramp has other samples: its content is short.csv now and was "
                "long.csv"));
}

TEST(DataFacts, NameTheKeyRatherThanTheContentThatFollowsFromIt) {
  EXPECT_THAT(refused(kDigits, with(with(kDigits, "data.content", "xxh3:2"), "data.name", "text")),
              AllOf(HasSubstr("data.name is text"), Not(HasSubstr("xxh3"))));
}

TEST(DataFacts, TellAnotherTestPart) {
  const Json idx = with(with(kDigits, "data.name", "idx"), "data.test_content", "xxh3:5");
  EXPECT_NO_THROW(require_same_data(idx, idx));
  EXPECT_THAT(
      refused(idx, with(idx, "data.test_content", "xxh3:6")),
      AllOf(HasSubstr("data.test_content is xxh3:6 now and was xxh3:5"), HasSubstr("--fresh")));
  EXPECT_THAT(refused(idx, without(idx, "data.test_content")),
              HasSubstr("data.test_content is not in use now and was xxh3:5"));
  EXPECT_THAT(refused(idx, with(with(idx, "data.test_content", "xxh3:6"), "data.shuffle", "no")),
              AllOf(HasSubstr("data.shuffle is no"), Not(HasSubstr("xxh3"))));
}

TEST(DataFacts, OfATestPartMayBeMissingInACheckpoint) {
  const Json idx = with(with(kDigits, "data.name", "idx"), "data.test_content", "xxh3:5");
  EXPECT_NO_THROW(require_same_data(without(idx, "data.test_content"), idx));
  EXPECT_NO_THROW(
      require_same_data(without(without(idx, "data.test_content"), "data.content"), idx));
  EXPECT_NO_THROW(require_same_data(Json(), idx));
}

TEST(DataFacts, OfAnEarlierVersionAreComparedAsFarAsTheyGo) {
  const Json was = without(kDigits, "data.content");
  EXPECT_NO_THROW(require_same_data(was, kDigits));
  EXPECT_NO_THROW(require_same_data(was, without(kDigits, "data.split_seed")));
  EXPECT_NO_THROW(require_same_data(Json::object(), kDigits));
  EXPECT_NO_THROW(require_same_data(kDigits, with(Json::object(), "data.shuffle", "true")));
  EXPECT_THAT(refused(was, with(kDigits, "data.split_seed", "8")), HasSubstr("data.split_seed"));
}

}  // namespace
}  // namespace trireme::data_facts_test
