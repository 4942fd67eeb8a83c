#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/plan/strategy.h>

#include "../base/expect_error.h"

namespace trireme::plan::strategy_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

struct Numbers {
  int workers, replicas;
};
// Replicas below 1 are not decided yet.
const std::vector<Numbers> kAllNumbers = {{1, -1}, {1, 0}, {1, 1}, {1, 2},
                                          {1, 8},  {2, 0}, {2, 1}, {3, 2}};

std::string refusal(const std::string& name, Numbers numbers) {
  return message_of(ErrorCode::invalid_argument,
                    [&] { resolve_strategy(name, numbers.workers, numbers.replicas); });
}

TEST(Strategies, ThatComeWithTriremeAreEight) {
  EXPECT_THAT(strategies(),
              ElementsAre("one_device", "mirrored", "multi_worker", "central_storage", "pipeline",
                          "sharded", "tensor", "parameter_server"));
  for (const char* const name : {"multi_worker", "central_storage", "parameter_server"})
    EXPECT_FALSE(is_of_mesh(name));
  for (const char* const name : {"pipeline", "sharded", "tensor"}) EXPECT_TRUE(is_of_mesh(name));
}

TEST(Strategies, HaveFeaturesAlsoThoseThatAreAdded) {
  EXPECT_TRUE(features_of("multi_worker")->compression);
  EXPECT_FALSE(features_of("sharded")->compression);
  EXPECT_TRUE(features_of("tensor")->divides);
  EXPECT_FALSE(features_of("of nobody"));
  add_strategy("of somebody", {.compression = true});
  EXPECT_TRUE(features_of("of somebody")->compression);
  EXPECT_EQ(strategies().back(), "of somebody");
}

TEST(Strategies, AutoFollowsWorkersThenReplicas) {
  for (const auto& [workers, replicas] : kAllNumbers)
    EXPECT_EQ(resolve_strategy("auto", workers, replicas), workers > 1    ? "multi_worker"
                                                           : replicas > 1 ? "mirrored"
                                                                          : "one_device")
        << workers << " workers, " << replicas << " replicas";
}

TEST(Strategies, StayWhatTheyAreWhereTheyFit) {
  for (const int replicas : {-1, 0, 1})
    EXPECT_EQ(resolve_strategy("one_device", 1, replicas), "one_device");
  for (const int replicas : {-1, 0, 1, 2, 8})
    EXPECT_EQ(resolve_strategy("mirrored", 1, replicas), "mirrored");
  for (const auto& [workers, replicas] : kAllNumbers)
    EXPECT_EQ(resolve_strategy("multi_worker", workers, replicas), "multi_worker");
}

TEST(Strategies, ThatAreNotKnownHereStayAsTheyAre) {
  for (const auto& [workers, replicas] : kAllNumbers)
    for (const std::string name : {"majority_vote", "Mirrored", ""})
      EXPECT_EQ(resolve_strategy(name, workers, replicas), name);
}

TEST(Strategies, OfOneProcessAreRefusedForSeveralWorkers) {
  for (const std::string name : {"one_device", "mirrored"})
    for (const Numbers numbers : {Numbers{2, 1}, Numbers{3, -1}, Numbers{3, 4}})
      EXPECT_THAT(refusal(name, numbers),
                  AllOf(HasSubstr("strategy.name is " + name),
                        HasSubstr(std::to_string(numbers.workers) + " workers"),
                        HasSubstr("try: strategy.name=multi_worker")));
}

TEST(Strategies, OfOneReplicaAreRefusedForSeveralReplicas) {
  EXPECT_THAT(refusal("one_device", {1, 4}), AllOf(HasSubstr("strategy.name is one_device"),
                                                   HasSubstr("4 replicas (strategy.replicas)"),
                                                   HasSubstr("try: strategy.name=mirrored")));
}

}  // namespace
}  // namespace trireme::plan::strategy_test
