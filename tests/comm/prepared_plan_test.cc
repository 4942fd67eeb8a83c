#include <gtest/gtest.h>
#include <trireme/comm/prepared_plan.h>

#include "../plan/reference_executor.h"

namespace trireme::comm::prepared_plan_test {
namespace {

TEST(PreparedPlan, KnowsTheBytesOfItsPlanForAnySize) {
  plan::for_each_plan(9, [](const plan::CollectivePlan& plan) {
    const PreparedPlan prepared(plan);
    for (const int64_t elements : {0, 1, 2, 5, 8, 97, 1000}) {
      for (int rank = 0; rank < plan.world_size; ++rank)
        ASSERT_EQ(prepared.bytes_sent(rank, elements, 2), plan.bytes_sent(rank, elements, 2))
            << plan.describe() << "rank " << rank << " of " << elements << " elements";
    }
  });
}

TEST(PlanChoice, KnowsTheBytesOfThePlanThatItChooses) {
  plan::CollectiveTable table;
  table.set({"tcp", plan::Collective::all_reduce, 3, 1},
            {{0, plan::Algorithm::naive}, {4096, plan::Algorithm::ring}});
  table.always(plan::Collective::broadcast, plan::Algorithm::tree);
  const std::vector<int> hosts{0, 0, 0};
  const PlanChoice choice("tcp", 3, hosts, table);
  EXPECT_EQ(choice.table(), table);
  EXPECT_EQ(choice.hosts(), hosts);
  const auto by = [&](plan::Algorithm algorithm, int64_t elements) {
    return plan::plan_collective(plan::Collective::all_reduce, algorithm, 3, 0, hosts)
        .bytes_sent(1, elements, 4);
  };
  EXPECT_EQ(choice.bytes_sent(1, plan::Collective::all_reduce, 1023, 4, 0),
            by(plan::Algorithm::naive, 1023));
  EXPECT_EQ(choice.bytes_sent(1, plan::Collective::all_reduce, 1024, 4, 0),
            by(plan::Algorithm::ring, 1024));
  EXPECT_EQ(choice.bytes_sent(2, plan::Collective::broadcast, 10, 4, 2), 80)
      << "the root of a tree of three ranks sends to both of the others";
}

}  // namespace
}  // namespace trireme::comm::prepared_plan_test
