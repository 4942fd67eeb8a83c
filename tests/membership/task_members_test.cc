// Side tasks and workers of one job, with a coordinator in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <trireme/membership/protocol.h>

#include "job.h"

namespace trireme::membership::task_members_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

Roles three_roles() {
  return Roles({{.name = "ps", .count = 2, .on_loss = OnLoss::replace},
                {.name = "evaluator", .count = 1, .on_loss = OnLoss::tell},
                {.name = "chief", .count = 1, .on_loss = OnLoss::end_generation}});
}

struct TaskJob {
  explicit TaskJob(int workers)
      : members(static_cast<size_t>(workers)),
        coordinator(kAnyPort, kToken, options_for(workers), std::nullopt, {}, three_roles()) {
    on_each(workers, [this, workers](int worker) {
      members[static_cast<size_t>(worker)] = std::make_unique<Member>(
          coordinator.endpoint(), kToken, worker, workers, 5, Facts{}, options);
    });
  }
  std::unique_ptr<Member> join(const Task& task, Facts facts = {}) {
    return std::make_unique<Member>(coordinator.endpoint(), kToken, task, std::move(facts),
                                    options);
  }
  Member& worker(int number) { return *members[static_cast<size_t>(number)]; }

  const MemberOptions options{.timeout = Milliseconds(10000),
                              .heartbeat_interval = Milliseconds(20)};
  std::vector<std::unique_ptr<Member>> members;
  Coordinator coordinator;
};

TEST(TaskMembers, FindTheTasksOfEachRole) {
  TaskJob job(2);
  EXPECT_THAT(job.worker(0).task_peers("ps"), IsEmpty());
  const auto second = job.join({"ps", 1}), first = job.join({"ps", 0});
  const auto found = job.worker(1).wait_for("ps", soon());
  ASSERT_THAT(found, SizeIs(2));
  EXPECT_EQ(found[1].task, (Task{"ps", 1}));
  EXPECT_EQ(found[1].address, "127.0.0.1");
  EXPECT_EQ(found[1].incarnation, 1);
  EXPECT_THAT(first->wait_for("worker", soon()), SizeIs(2));
  EXPECT_THAT(job.worker(0).peers(), SizeIs(2));  // The workers, as without side tasks.
}

TEST(TaskMembers, AWaitForATaskThatDoesNotComeNamesIt) {
  TaskJob job(1);
  const auto ps = job.join({"ps", 0});
  const Error late =
      error_of([&] { job.worker(0).wait_for("ps", Deadline::after(Milliseconds(100))); });
  EXPECT_EQ(late.code(), ErrorCode::timeout);
  EXPECT_THAT(late.what(), HasSubstr("these are missing: ps 1"));
  const Error unknown = error_of([&] { job.worker(0).wait_for("server", soon()); });
  EXPECT_EQ(unknown.code(), ErrorCode::not_found);
  EXPECT_THAT(unknown.what(), HasSubstr("worker, chief, evaluator and ps"));
}

TEST(TaskMembers, AKeyOfASideTaskIsThereUntilTheTaskIsLost) {
  TaskJob job(2);
  auto ps = job.join({"ps", 0});
  ps->set("address", "here:1");
  EXPECT_EQ(job.worker(0).get("address", soon()), "here:1");
  ps.reset();
  ASSERT_TRUE(eventually([&] { return !job.worker(0).lost_tasks().empty(); }));
  EXPECT_EQ(job.worker(0).find("address"), std::nullopt);
  std::thread replacement([&] {
    ps = job.join({"ps", 0});
    ps->set("address", "there:2");
  });
  EXPECT_EQ(job.worker(1).get("address", soon()), "there:2");
  replacement.join();
}

TEST(TaskMembers, AreToldOfALostTaskAndOfItsReplacement) {
  TaskJob job(2);
  auto ps = job.join({"ps", 1});
  const auto evaluator = job.join({"evaluator", 0});
  ps.reset();
  for (Member* member : {&job.worker(0), &job.worker(1), evaluator.get()}) {
    ASSERT_TRUE(eventually([&] { return !member->lost_tasks().empty(); }));
    const LostTask lost = member->lost_tasks().front();
    EXPECT_EQ(lost.who.task, (Task{"ps", 1}));
    EXPECT_EQ(lost.who.incarnation, 1);
    EXPECT_FALSE(lost.is_back);
    EXPECT_FALSE(member->is_lost());  // The generation continues.
  }
  job.coordinator.report_lost_task(1, "killed by signal 9 (SIGKILL)");
  EXPECT_TRUE(eventually([&] {
    return job.worker(0).lost_tasks().front().reason == "killed by signal 9 (SIGKILL)";
  }));
  ps = job.join({"ps", 1});
  ASSERT_TRUE(eventually([&] { return job.worker(0).lost_tasks().front().is_back; }));
  EXPECT_EQ(job.worker(0).task_peers("ps").front().incarnation, 2);
  on_each(2, [&](int worker) { job.worker(worker).agree("still there", {}); });
}

TEST(TaskMembers, ATaskWhoseLossEndsTheGenerationEndsAllWaits) {
  TaskJob job(2);
  auto chief = job.join({"chief", 0});
  std::vector<std::string> complaints(2);
  std::thread killer([&] {
    std::this_thread::sleep_for(Milliseconds(50));
    chief.reset();
  });
  on_each(2, [&](int worker) {
    complaints[static_cast<size_t>(worker)] =
        error_of([&] { job.worker(worker).get("never set", soon()); }).what();
  });
  killer.join();
  for (const std::string& complaint : complaints)
    EXPECT_THAT(complaint, HasSubstr("chief 0 (host"));
  EXPECT_EQ(job.worker(0).lost()->task, (Task{"chief", 0}));
}

TEST(TaskMembers, SideTasksLearnOfALostWorkerAndOfTheEnd) {
  TaskJob job(2);
  const auto ps = job.join({"ps", 0});
  job.members[1].reset();
  ASSERT_TRUE(eventually([&] { return !ps->lost_tasks().empty(); }));
  EXPECT_EQ(ps->lost_tasks().front().who.task, (Task{"worker", 1}));
  EXPECT_FALSE(ps->finish_wanted());
  job.coordinator.finish_tasks();
  EXPECT_TRUE(eventually([&] { return ps->finish_wanted(); }));
  ps->leave();
}

TEST(TaskMembers, ATaskThatTheCoordinatorHasLostServesNoLonger) {
  TaskJob job(1);
  const auto ps = job.join({"ps", 0}), leaves = job.join({"ps", 1});
  leaves->leave();
  EXPECT_FALSE(ps->finish_wanted());
  job.coordinator.report_lost_task(0, "silent for 10 s");
  const Error error = error_of([&] { eventually([&] { return ps->finish_wanted(); }); });
  EXPECT_EQ(error.code(), ErrorCode::peer_lost);
  EXPECT_THAT(error.what(), HasSubstr("ps 0 lost the coordinator: "));
  EXPECT_FALSE(leaves->finish_wanted());
}

TEST(TaskMembers, AWorkerMayWaitForASideTaskWhenAllOtherWorkersHaveLeft) {
  TaskJob job(2);
  const auto ps = job.join({"ps", 0});
  job.worker(1).leave();
  std::thread setter([&] {
    std::this_thread::sleep_for(Milliseconds(100));
    ps->set("late", "value");
  });
  EXPECT_EQ(job.worker(0).get("late", soon()), "value");
  setter.join();
}

TEST(TaskMembers, WrongTasksAreRefused) {
  TaskJob job(1);
  const auto ps = job.join({"ps", 0}, {{"shards", "2"}});
  EXPECT_THAT(error_of([&] { job.join({"ps", 0}); }).what(), HasSubstr("its task is taken"));
  EXPECT_THAT(error_of([&] { job.join({"ps", 7}); }).what(), HasSubstr("is no task of this job"));
  EXPECT_THAT(error_of([&] { job.join({"ps", 1}, {{"shards", "3"}}); }).what(),
              HasSubstr("shards is '3'"));
  EXPECT_THAT(error_of([&] { ps->barrier("all"); }).what(), HasSubstr("ps 0 is no worker"));
}

}  // namespace
}  // namespace trireme::membership::task_members_test
