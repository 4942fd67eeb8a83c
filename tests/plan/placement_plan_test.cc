#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/plan/placement_plan.h>
#include <algorithm>
#include <random>

#include "../base/expect_error.h"

namespace trireme::plan::placement_plan_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<TensorSpec> tensors_of(const std::vector<int64_t>& elements) {
  std::vector<TensorSpec> tensors;
  for (const int64_t count : elements)
    tensors.push_back({"tensor" + std::to_string(tensors.size()), {count}});
  return tensors;
}

std::string refusal(const PlacementFacts& facts) {
  return message_of(ErrorCode::invalid_argument, [&] { plan_placement(facts); });
}

TEST(PlacementPlan, OneServerHasEverything) {
  const PlacementPlan plan = plan_placement({.tensors = tensors_of({10, 20}), .servers = 1});
  check(plan);
  EXPECT_EQ(plan.facts.replication, 1);
  EXPECT_THAT(plan.bytes_of_servers(), ElementsAre(120));
  EXPECT_THAT(plan.chain(0), ElementsAre(0));
}

TEST(PlacementPlan, TwoServersHaveCopiesOfEachOther) {
  const PlacementPlan plan = plan_placement({.tensors = tensors_of({10, 20, 30}), .servers = 2});
  check(plan);
  EXPECT_THAT(plan.bytes_of_servers(), ElementsAre(120, 120));
  EXPECT_THAT(plan.chain(1), ElementsAre(1, 0));
  EXPECT_THAT(plan.describe(), AllOf(HasSubstr("ps 0"), HasSubstr("copies on ps 1")));
}

TEST(PlacementPlan, CutsATensorThatHasMostOfTheModel) {
  const PlacementPlan plan =
      plan_placement({.tensors = tensors_of({8 << 20, 3, 1000}), .servers = 4});
  check(plan);
  EXPECT_LT(plan.imbalance(), 1.01);
  const auto large = std::ranges::count(plan.pieces, 0, &ServerPiece::tensor);
  EXPECT_GE(large, 4);
}

TEST(PlacementPlan, IsEvenForModelsOfAllKinds) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<int64_t> elements;
    for (int i = std::uniform_int_distribution(0, 30)(random); i > 0; --i)
      elements.push_back(std::uniform_int_distribution(0, 1 << (i % 22))(random));
    const int servers = std::uniform_int_distribution(1, 6)(random);
    const PlacementFacts facts{.tensors = tensors_of(elements), .servers = servers};
    const PlacementPlan plan = plan_placement(facts);
    check(plan);
    EXPECT_EQ(plan.digest(), plan_placement(facts).digest());
  }
}

TEST(PlacementPlan, ItsCheckNamesWhatIsWrong) {
  const PlacementPlan good = plan_placement({.tensors = tensors_of({4 << 20, 100}), .servers = 2});
  const auto broken = [&](auto&& damage) {
    PlacementPlan plan = good;
    damage(plan);
    return message_of(ErrorCode::internal, [&] { check(plan); });
  };
  EXPECT_THAT(broken([](PlacementPlan& plan) { plan.pieces.pop_back(); }), HasSubstr("tensor1"));
  EXPECT_THAT(broken([](PlacementPlan& plan) { ++plan.pieces[1].from; }), HasSubstr("tensor0"));
  EXPECT_THAT(broken([](PlacementPlan& plan) { plan.pieces[0].server = 2; }),
              HasSubstr("server 2"));
  EXPECT_THAT(broken([](PlacementPlan& plan) {
                for (ServerPiece& piece : plan.pieces) piece.server = 1;
              }),
              HasSubstr("server 1 has"));
}

TEST(PlacementPlan, RefusesWhatCannotBe) {
  EXPECT_THAT(refusal({.tensors = {}, .servers = 0}), HasSubstr("0 parameter servers"));
  EXPECT_THAT(refusal({.tensors = {}, .servers = 2, .replication = 3}),
              AllOf(HasSubstr("ps.replication is 3"), HasSubstr("2 parameter servers")));
  EXPECT_THAT(refusal({.tensors = {{"a", {2}}, {"a", {3}}}, .servers = 1}),
              HasSubstr("'a' is there twice"));
}

}  // namespace
}  // namespace trireme::plan::placement_plan_test
