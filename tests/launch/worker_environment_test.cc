#include <trireme/launch/worker_environment.h>

#include <gmock/gmock.h>

#include <trireme/base/error.h>
#include <trireme/launch/supervisor_options.h>
#include <map>
#include <string>
#include <vector>

namespace trireme::launch::worker_environment_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const JobFacts kFacts{.rendezvous = "127.0.0.1:4000", .token = "secret", .cores = 8};

SupervisorOptions options_for(int workers, int nodes = 1, int node = 0) {
  SupervisorOptions options;
  options.workers = workers;
  options.nodes = nodes;
  options.node = node;
  options.rendezvous = {"127.0.0.1", 29500};
  options.command = {"true"};
  return options;
}

TEST(WorkerEnvironment, NamesTheWorker) {
  const auto environment = worker_environment(options_for(5, 2, 1), kFacts, 1, {});
  for (const char* entry : {"TRIREME_WORKER=4", "TRIREME_WORKERS=5", "TRIREME_LOCAL_WORKER=1",
                            "TRIREME_LOCAL_WORKERS=2", "TRIREME_RENDEZVOUS=127.0.0.1:4000",
                            "TRIREME_GENERATION=0", "TRIREME_JOB_TOKEN=secret"}) {
    EXPECT_THAT(environment, Contains(entry));
  }
}

TEST(WorkerEnvironment, GivesTheRoleOfTheChiefToWorker0Alone) {
  SupervisorOptions options = options_for(2);
  options.has_chief = true;
  const auto chief = worker_environment(options, kFacts, 0, {});
  EXPECT_THAT(chief, Contains("TRIREME_ROLE=chief"));
  EXPECT_THAT(chief, Contains("TRIREME_WORKER=0"));
  EXPECT_THAT(worker_environment(options, kFacts, 1, {}), Contains("TRIREME_ROLE=worker"));
  SupervisorOptions second = options_for(2, 2, 1);
  second.has_chief = true;
  EXPECT_THAT(worker_environment(second, kFacts, 0, {}), Contains("TRIREME_ROLE=worker"));
}

TEST(WorkerEnvironment, SaysHowLongAWorkerOutlivesItsLauncherOnAnyNumberOfNodes) {
  for (const int nodes : {1, 2}) {
    SupervisorOptions options = options_for(2, nodes);
    options.elastic = membership::Elastic{.minimum = 1, .maximum = 2};
    options.launcher_grace = Milliseconds(1500);
    EXPECT_THAT(worker_environment(options, kFacts, 0, {}),
                Contains("TRIREME_LAUNCHER_GRACE_MS=1500"));
  }
}

TEST(WorkerEnvironment, KeepsWhatItInheritsAndAddsTheOptions) {
  SupervisorOptions options = options_for(1);
  options.environment = {{"B", "of options"}};
  const auto environment =
      worker_environment(options, kFacts, 0, {"A=1", "B=2", "TRIREME_WORKER=9"});
  EXPECT_THAT(environment, Contains("A=1"));
  EXPECT_THAT(environment, Contains("B=of options"));
  EXPECT_THAT(environment, Contains("TRIREME_WORKER=0"));
  EXPECT_THAT(environment, Not(Contains("TRIREME_WORKER=9")));
}

TEST(WorkerEnvironment, DividesTheCores) {
  const auto environment = worker_environment(options_for(3), kFacts, 0, {});
  EXPECT_THAT(environment, Contains("OMP_NUM_THREADS=2"));
  EXPECT_THAT(environment, Contains("MKL_NUM_THREADS=2"));
}

TEST(WorkerEnvironment, GivesEachWorkerAtLeastOneThread) {
  EXPECT_THAT(worker_environment(options_for(20), kFacts, 0, {}), Contains("OMP_NUM_THREADS=1"));
}

TEST(WorkerEnvironment, LeavesThreadCountsOfTheUserAlone) {
  SupervisorOptions options = options_for(2);
  options.threads_per_worker = 3;
  const auto environment = worker_environment(options, kFacts, 0, {"OMP_NUM_THREADS=7"});
  EXPECT_THAT(environment, Contains("OMP_NUM_THREADS=7"));
  EXPECT_THAT(environment, Contains("MKL_NUM_THREADS=3"));
}

TEST(WorkerEnvironment, HandsOverTheTokenInsteadOfItsFile) {
  EXPECT_THAT(worker_environment(options_for(1), kFacts, 0, {"TRIREME_JOB_TOKEN_FILE=/x"}),
              Not(Contains(StartsWith("TRIREME_JOB_TOKEN_FILE="))));
}

std::string refusal_of(const SupervisorOptions& options) {
  try {
    check_supervisor_options(options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "";
}

TEST(SupervisorOptions, AreCheckedBeforeAnythingStarts) {
  EXPECT_EQ(refusal_of(options_for(2)), "");
  EXPECT_THAT(refusal_of(options_for(0)), HasSubstr("0 workers"));
  EXPECT_THAT(refusal_of(options_for(2, 0)), HasSubstr("0 nodes"));
  EXPECT_THAT(refusal_of(options_for(2, 2, 2)), HasSubstr("node 2 of 2"));
  EXPECT_THAT(refusal_of(options_for(2, 3)), HasSubstr("2 workers on 3 nodes"));
  SupervisorOptions no_program = options_for(1);
  no_program.command.clear();
  EXPECT_THAT(refusal_of(no_program), HasSubstr("no programme"));
  SupervisorOptions no_port = options_for(2, 2);
  no_port.rendezvous.port = 0;
  EXPECT_THAT(refusal_of(no_port), HasSubstr("fixed port"));
  no_port.etcd = net::parse_etcd_url("etcd://10.0.0.5:2379/job");
  EXPECT_EQ(refusal_of(no_port), "");
}

TEST(JobToken, IsTheUsersOrNew) {
  const Environment given(
      std::map<std::string, std::string>{{"TRIREME_JOB_TOKEN", "mine-and-long-enough"}});
  EXPECT_EQ(token_of_job(options_for(1), given), "mine-and-long-enough");
  const std::string fresh = token_of_job(options_for(1), Environment());
  EXPECT_GE(fresh.size(), 32u);
  EXPECT_NE(fresh, token_of_job(options_for(1), Environment()));
}

TEST(JobToken, MustBeGivenWhereSeveralLaunchersMeet) {
  try {
    token_of_job(options_for(2, 2), Environment());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("TRIREME_JOB_TOKEN"));
  }
}

TEST(MarkOfJob, IsTheSameForAllLaunchersOfAJobOnSeveralNodes) {
  const auto job_at = [](int nodes, int port, const std::string& token) {
    SupervisorOptions options = options_for(nodes, nodes);
    options.rendezvous.port = port;
    return mark_of_job(options, token).job;
  };
  EXPECT_EQ(job_at(2, 29500, "token"), job_at(2, 29500, "token"));
  EXPECT_NE(job_at(2, 29500, "token"), job_at(2, 29501, "token"));
  EXPECT_NE(job_at(2, 29500, "token"), job_at(2, 29500, "another"));
  // On one node each start is a job of its own, whatever its token.
  EXPECT_NE(job_at(1, 29500, "token"), job_at(1, 29500, "token"));
}

}  // namespace
}  // namespace trireme::launch::worker_environment_test
