// The World of a job with side tasks. The coordinator runs in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/base/error.h>
#include <trireme/comm/world.h>
#include <trireme/membership/coordinator.h>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace trireme::world_tasks_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const std::string kToken = "a secret of this job";

using Facts = std::map<std::string, std::string>;

membership::Roles roles_with(const std::string& agreement) {
  std::vector<membership::Role> roles{{.name = "ps"}};
  if (!agreement.empty()) membership::add_agreement(roles, agreement, "--agree");
  return membership::Roles(roles);
}

struct Job {
  explicit Job(const std::string& agreement = "")
      : coordinator({"127.0.0.1", 0}, kToken, {.workers = 1}, std::nullopt, {},
                    roles_with(agreement)) {}

  membership::Coordinator coordinator;
  World join(std::map<std::string, std::string> variables, Facts terms) const {
    variables["TRIREME_WORKERS"] = "1";
    variables["TRIREME_RENDEZVOUS"] = coordinator.endpoint().describe();
    variables["TRIREME_JOB_TOKEN"] = kToken;
    World world = World::join({.timeout = Milliseconds(10000)}, Environment(variables));
    world.set_terms(std::move(terms));
    world.connect();
    return world;
  }
  World ps(Facts terms = {}) const {
    return join({{"TRIREME_ROLE", "ps"}, {"TRIREME_INDEX", "0"}}, std::move(terms));
  }
  World worker(Facts terms = {}) const {
    return join({{"TRIREME_WORKER", "0"}}, std::move(terms));
  }
};

Deadline soon() { return Deadline::after(Milliseconds(10000)); }

TEST(WorldTasks, AWorkerFindsASideTaskAndWhatItPublished) {
  const Job job;
  World worker = job.worker();
  EXPECT_EQ(worker.task(), (membership::Task{"worker", 0}));
  EXPECT_THAT(worker.peers("ps"), IsEmpty());
  World ps = job.ps();
  ps.set_value("address", "here");
  EXPECT_THAT(worker.wait_for("ps", soon()), SizeIs(1));
  EXPECT_EQ(worker.get_value("address", soon()), "here");
  EXPECT_THAT(ps.wait_for("worker", soon()), SizeIs(1));
  EXPECT_EQ(worker.size(), 1);  // Side tasks do not count.
  ps.leave();
  worker.leave();
}

TEST(WorldTasks, TwoProcessesWithTheTaskOfTheCoordinatorAreToldSo) {
  const Job holder;  // It holds the address.
  const std::string address = holder.coordinator.endpoint().describe();
  const Environment chief({{"TF_CONFIG", R"({"cluster": {"chief": [")" + address +
                                             R"("], "worker": ["127.0.0.1:9"]}, )"
                                             R"("task": {"type": "chief", "index": 0}})"},
                           {"TRIREME_JOB_TOKEN", kToken}});
  try {
    World::join({.timeout = Milliseconds(5000)}, chief).connect();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_THAT(error.what(), HasSubstr("chief 0 has the coordinator of its job, and cannot "
                                        "listen on " +
                                        address + ": Address already in use"));
    EXPECT_THAT(error.what(), HasSubstr("another one may have the task chief 0 too"));
  }
}

std::vector<std::string> connected;
void connect_to(const std::string& address) { connected.push_back(address); }
std::string own_address() { return "10.0.0.7:4000"; }
void serve() { std::this_thread::sleep_for(Milliseconds(1)); }

// The programme of docs/roles.md.
void take_part(World& world) {
  if (world.task().role == "ps") {
    world.set_value("address of " + world.task().name(), own_address());
    while (!world.finish_wanted()) serve();
    return world.leave();
  }
  const Deadline deadline = Deadline::after(Milliseconds(30000));
  for (const auto& server : world.wait_for("ps", deadline))
    connect_to(world.get_value("address of " + server.task.name(), deadline));
  world.leave();
}

TEST(WorldTasks, AProgrammeOfTwoRolesFindsItsParts) {
  Job job;
  std::thread server([&] {
    World ps = job.ps();
    take_part(ps);
  });
  World worker = job.worker();
  take_part(worker);
  job.coordinator.finish_tasks();  // As the launcher does after the last worker.
  server.join();
  EXPECT_THAT(connected, testing::ElementsAre("10.0.0.7:4000"));
}

TEST(WorldTasks, ASideTaskHasNoRankAndMakesNoGroups) {
  const Job job;
  World ps = job.ps();
  EXPECT_EQ(ps.task(), (membership::Task{"ps", 0}));
  EXPECT_EQ(ps.rank(), -1);
  EXPECT_EQ(ps.size(), 1);
  EXPECT_FALSE(ps.finish_wanted());
  try {
    ps.make_groups();
    FAIL() << "a side task made groups";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("ps 0 is no worker and has no rank"));
  }
  EXPECT_THROW(ps.agree("anything", {}), Error);
  ps.leave();
}

TEST(WorldTasks, ASideTaskWithoutTheAgreedFactsIsRefused) {
  const Job job("ps,worker:model");
  World worker = job.worker({{"model", "large"}, {"seed", "1"}});
  try {
    job.ps({{"model", "small"}});
    FAIL() << "it was admitted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    for (const char* part : {"ps 0", "the workers", "model", "small", "large"})
      EXPECT_THAT(error.what(), HasSubstr(part));
  }
  World same = job.ps({{"model", "large"}, {"seed", "2"}});
  EXPECT_THAT(worker.wait_for("ps", soon()), SizeIs(1));
  same.leave();
  worker.leave();
}

TEST(WorldTasks, AnUnconnectedWorldHasNoPeers) {
  World alone = World::join({}, Environment(std::map<std::string, std::string>{}));
  alone.connect();
  EXPECT_THROW(alone.peers("ps"), Error);
  EXPECT_THAT(alone.lost_tasks(), IsEmpty());
}

}  // namespace
}  // namespace trireme::world_tasks_test
