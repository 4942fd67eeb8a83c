// The plan of strategy parameter_server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/plan/server_plan.h>
#include <trireme/plan/strategy.h>

#include "../base/expect_error.h"

namespace trireme::plan::server_plan_test {
namespace {

using testing::HasSubstr;

DataParallelFacts facts_of(int ranks, int servers) {
  DataParallelFacts facts;
  facts.placement = on_one_host(ranks, "shm", {});
  facts.parameters = {{"in", {40000, 3}, DType::float32, true},
                      {"frozen", {100}, DType::float32, false},
                      {"out", {7}, DType::float32, true}};
  facts.ps.servers = servers;
  return facts;
}

TEST(ServerPlan, PlacesWhatIsTrained) {
  for (int ranks = 1; ranks <= 4; ++ranks)
    for (int servers = 1; servers <= 16; ++servers) {
      const EnginePlan plan = plan_engine("parameter_server", facts_of(ranks, servers));
      check(plan);
      EXPECT_EQ(plan.engine, "parameter_server");
      EXPECT_EQ(plan.servers->facts.servers, servers);
      EXPECT_EQ(plan.servers->facts.tensors.size(), 2U);
      EXPECT_THAT(plan.describe(), HasSubstr("on " + std::to_string(servers) + " server"));
    }
}

TEST(ServerPlan, DependsOnTheServers) {
  EXPECT_NE(plan_servers(facts_of(2, 2)).digest(), plan_servers(facts_of(2, 3)).digest());
  EXPECT_EQ(plan_servers(facts_of(2, 2)).digest(), plan_servers(facts_of(2, 2)).digest());
}

TEST(ServerPlan, RefusesWhatCannotBe) {
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { plan_servers(facts_of(2, 0)); }),
              HasSubstr("--ps"));
}

// A generation may have fewer workers than the job began with. The rule between workers and backup
// workers is that of the job (train/trainer_rules.cc).
TEST(ServerPlan, AGenerationMayBeAsSmallAsTheBackupWorkers) {
  DataParallelFacts facts = facts_of(1, 2);
  facts.ps.consistency.backup_workers = 1;
  check(plan_servers(facts));
}

}  // namespace
}  // namespace trireme::plan::server_plan_test
