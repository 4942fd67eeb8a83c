#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/base/error.h>
#include <trireme/membership/roles.h>
#include <trireme/membership/side_tasks.h>

namespace trireme::membership::roles_test {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The message of the error that `call` throws.
template <typename Call>
std::string complaint_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  ADD_FAILURE() << "it was accepted";
  return {};
}

const Role kPs{.name = "ps", .count = 2, .on_loss = OnLoss::replace};
const Role kEvaluator{.name = "evaluator", .count = 1, .on_loss = OnLoss::tell};

TEST(Roles, TasksAreNumberedInTheOrderOfTheRoles) {
  const Roles roles({kPs, kEvaluator});
  EXPECT_EQ(roles.count(), 3);
  EXPECT_EQ(roles.task_of(1), (Task{"ps", 1}));
  EXPECT_EQ(roles.task_of(2), (Task{"evaluator", 0}));
  EXPECT_EQ(roles.number_of({"evaluator", 0}), 2);
  EXPECT_EQ(roles.number_of({"ps", 2}), std::nullopt);
  EXPECT_EQ(roles.number_of({"chief", 0}), std::nullopt);
  EXPECT_THROW(roles.task_of(3), Error);
  EXPECT_EQ(roles.describe(), "2 ps and 1 evaluator");
}

TEST(Roles, EachRoleIsSpreadEvenlyOverTheNodesInOrder) {
  const Roles roles({{.name = "ps", .count = 3}, kEvaluator});
  EXPECT_THAT(roles.on_node(2, 0), ElementsAre(0, 1, 3));
  EXPECT_THAT(roles.on_node(2, 1), ElementsAre(2));
}

TEST(Roles, AreTheSameAfterAMessage) {
  Role ps = kPs;
  ps.must_agree = {{{"model"}, {"worker"}}};
  EXPECT_EQ(Roles::from_json(Roles({ps, kEvaluator}).to_json()).to_json(),
            Roles({ps, kEvaluator}).to_json());
}

TEST(Roles, WrongOnesAreRefusedWithTheReason) {
  const auto of = [](Role role) { return complaint_of([&] { Roles({role}); }); };
  EXPECT_THAT(of({.name = ""}), HasSubstr("the name '' of a role"));
  EXPECT_THAT(of({.name = "a b"}), HasSubstr("the name 'a b' of a role"));
  EXPECT_THAT(of({.name = "worker"}), HasSubstr("which each job has already"));
  EXPECT_THAT(of({.name = "ps", .count = 0}), HasSubstr("the role 'ps' has 0 tasks"));
  EXPECT_THAT(of({.name = "ps", .count = -1}), HasSubstr("has -1 tasks; a role has at least 1"));
  EXPECT_THAT(complaint_of([] { Roles({kPs, kPs}); }), HasSubstr("'ps' is declared twice"));
  Role lonely = kPs;
  lonely.must_agree = {{{"model"}, {"chief"}}};
  EXPECT_THAT(of(lonely), HasSubstr("must agree with the role 'chief', which the job does not"));
}

TEST(ParseRole, ReadsNameCountAndLoss) {
  const Role reader = parse_role("reader=3:tell", "--role");
  EXPECT_EQ(reader.name, "reader");
  EXPECT_EQ(reader.count, 3);
  EXPECT_EQ(reader.on_loss, OnLoss::tell);
  EXPECT_EQ(parse_role("ps=1", "--role").on_loss, OnLoss::replace);
  EXPECT_EQ(parse_role("evaluator=1", "--role").on_loss, OnLoss::tell);
  EXPECT_EQ(parse_role("reader=1", "--role").on_loss, OnLoss::end_generation);
  EXPECT_EQ(parse_role("ps=1:replace_or_tell", "--role").on_loss, OnLoss::replace_or_tell);
  EXPECT_EQ(parse_role("ps=1:end", "--role").on_loss, OnLoss::end_generation);
}

TEST(AddAgreement, GivesItToEachSideRole) {
  std::vector<Role> roles{kPs, kEvaluator};
  add_agreement(roles, "worker,evaluator,ps:model,seed", "--agree");
  ASSERT_THAT(roles[0].must_agree, testing::SizeIs(1));
  EXPECT_THAT(roles[0].must_agree[0].facts, ElementsAre("model", "seed"));
  EXPECT_THAT(roles[0].must_agree[0].with, ElementsAre("evaluator", "worker"));
  ASSERT_THAT(roles[1].must_agree, testing::SizeIs(1));
  EXPECT_THAT(roles[1].must_agree[0].with, ElementsAre("ps", "worker"));
}

TEST(AddAgreement, RefusesWhatItCannotRead) {
  for (const std::string text : {"", "ps", "ps:model", "ps,worker", "ps,worker:", "a,b:model",
                                 "ps,ps:model", ",ps,:model"}) {
    std::vector<Role> roles{kPs};
    EXPECT_THAT(complaint_of([&] { add_agreement(roles, text, "--agree"); }),
                HasSubstr("--agree is '" + text))
        << text;
  }
  EXPECT_THAT(complaint_of([] {
                std::vector<Role> roles{kPs};
                add_agreement(roles, "ps,chief:model", "--agree");
                const Roles made(roles);
              }),
              HasSubstr("'chief', which the job does not have"));
}

TEST(ParseRole, RefusesWhatItCannotRead) {
  for (const std::string text : {"", "ps", "ps=", "ps=x", "ps=1x", "ps=:tell"})
    EXPECT_THAT(complaint_of([&] { parse_role(text, "--role"); }), HasSubstr("--role is '" + text))
        << text;
  EXPECT_THAT(complaint_of([] { parse_role("ps=1:forget", "--role"); }),
              HasSubstr("'forget' is not a rule for a lost task"));
  EXPECT_THAT(complaint_of([] { parse_role("ps=0", "--role"); }), HasSubstr("has 0 tasks"));
}

TEST(LocalWorkers, CoverAllWorkersInOrderForAnyNumberOfNodes) {
  for (int workers = 1; workers <= 17; ++workers) {
    for (int nodes = 1; nodes <= workers; ++nodes) {
      int next = 0;
      for (int node = 0; node < nodes; ++node) {
        const LocalWorkers local = local_workers_of(workers, nodes, node);
        EXPECT_EQ(local.first, next);
        EXPECT_GE(local.count, workers / nodes);
        EXPECT_LE(local.count, workers / nodes + 1);
        next += local.count;
      }
      EXPECT_EQ(next, workers);
    }
  }
}

constexpr SideTasks::Time kNow{};
TaskRequest request_of(const Task& task, std::map<std::string, std::string> facts = {}) {
  return {task, "b", "10.0.0.2", 4711, std::move(facts)};
}

TEST(SideTasks, TwoProcessesNeverHaveTheSameTask) {
  SideTasks tasks(Roles({kPs}), 10s);
  EXPECT_FALSE(tasks.join(request_of({"ps", 0}), nullptr, kNow));
  EXPECT_THAT(tasks.join(request_of({"ps", 0}), nullptr, kNow)->what,
              HasSubstr("ps 0 (host b) cannot join: its task is taken by host b, pid 4711"));
  EXPECT_TRUE(tasks.lost(0, "connection closed"));
  EXPECT_FALSE(tasks.join(request_of({"ps", 0}), nullptr, kNow));
  EXPECT_EQ(tasks.message(0)["incarnation"], 2);
  EXPECT_EQ(tasks.message(0)["state"], "present");
}

TEST(SideTasks, AnUnknownTaskIsRefused) {
  SideTasks tasks(Roles({kPs}), 10s);
  EXPECT_THAT(tasks.join(request_of({"ps", 2}), nullptr, kNow)->what,
              HasSubstr("ps 2 (host b) is no task of this job, which has 2 ps"));
  EXPECT_THAT(SideTasks({}, 10s).join(request_of({"ps", 0}), nullptr, kNow)->what,
              HasSubstr("which has workers only"));
}

TEST(SideTasks, TasksOfARoleHaveAllFactsInCommon) {
  SideTasks tasks(Roles({kPs}), 10s);
  EXPECT_FALSE(tasks.join(request_of({"ps", 0}, {{"shards", "2"}}), nullptr, kNow));
  EXPECT_THAT(tasks.join(request_of({"ps", 1}, {{"shards", "3"}}), nullptr, kNow)->what,
              HasSubstr("shards is '3' on ps 1 (host b) and '2' on ps 0 (host b)"));
}

TEST(SideTasks, TasksOfTwoRolesHaveTheDeclaredFactsInCommon) {
  Role ps = kPs;
  ps.must_agree = {{{"model"}, {"worker"}}};
  SideTasks tasks(Roles({ps}), 10s);
  const std::map<std::string, std::string> worker{{"model", "a"}, {"rate", "1"}};
  EXPECT_THAT(tasks.join(request_of({"ps", 0}, {{"model", "b"}}), &worker, kNow)->what,
              HasSubstr("model is 'b' on ps 0 (host b) and 'a' on the workers"));
  EXPECT_FALSE(tasks.join(request_of({"ps", 0}, {{"model", "a"}, {"rate", "2"}}), &worker, kNow));
  EXPECT_FALSE(tasks.refuse_worker("worker 0", worker));
  EXPECT_THAT(tasks.refuse_worker("worker 0", {{"model", "c"}})->what,
              HasSubstr("model is 'c' on worker 0 and 'a' on ps 0 (host b)"));
}

TEST(SideTasks, ASilentTaskIsLost) {
  SideTasks tasks(Roles({kPs}), 10s);
  EXPECT_FALSE(tasks.join(request_of({"ps", 1}), nullptr, kNow));
  for (int second = 0; second <= 10; ++second)
    EXPECT_THAT(tasks.tick(kNow + second * 1s), IsEmpty());
  EXPECT_THAT(tasks.tick(kNow + 11s), ElementsAre(std::pair(1, std::string("silent for 11.0 s"))));
  const auto lost = tasks.lost(1, "silent for 11.0 s");
  EXPECT_THAT(lost->describe(), HasSubstr("ps 1 (host b, pid 4711) was lost in connecting"));
  EXPECT_FALSE(tasks.lost(1, "again"));
}

}  // namespace
}  // namespace trireme::membership::roles_test
