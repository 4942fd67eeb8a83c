// The identities of processes that Kubeflow's TFJob, DMLC's trackers and Slurm have started.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/membership/cluster_spec.h>
#include <trireme/membership/foreign_launchers.h>
#include <trireme/membership/identity.h>
#include <thread>

#include "../base/expect_error.h"

namespace trireme::membership::foreign_launchers_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Identity resolve(const Variables& variables) { return resolve_identity(Environment(variables)); }

std::string refusal_of(const Variables& variables) {
  return message_of(ErrorCode::invalid_argument, [&] { resolve(variables); });
}

std::string tf_config(const std::string& type, const std::string& index) {
  return R"({"cluster": {"chief": ["a:2222"], "worker": ["b:2222", "a:2223"],)"
         R"( "ps": ["c:2222", "c:2223"]}, "task": {"type": ")" +
         type + R"(", "index": )" + index + R"(}, "environment": "cloud"})";
}

Identity of_tf(const std::string& type, const std::string& index) {
  return resolve({{"TF_CONFIG", tf_config(type, index)}});
}

std::string tf_refusal(const std::string& text) { return refusal_of({{"TF_CONFIG", text}}); }

TEST(TfConfig, TheChiefIsWorker0AndHostsTheCoordinatorAtItsAddress) {
  const Identity chief = of_tf("chief", "0");
  EXPECT_EQ(chief.launcher, Launcher::tf_config);
  EXPECT_TRUE(chief.is_chief);
  EXPECT_EQ(chief.role(), "chief");
  EXPECT_TRUE(chief.is_worker());
  EXPECT_EQ(chief.worker, 0);
  EXPECT_EQ(chief.workers, 3);
  EXPECT_EQ(chief.rendezvous->describe(), "a:2222");
  EXPECT_TRUE(chief.hosts_coordinator);
  EXPECT_EQ(chief.roles.find("ps")->count, 2);
  EXPECT_EQ(chief.roles.find("ps")->on_loss, OnLoss::replace);
  EXPECT_THAT(chief.describe(), AllOf(HasSubstr("chief, worker 0 of 3"), HasSubstr("TF_CONFIG"),
                                      HasSubstr("a:2222"), HasSubstr("2 ps")));
}

TEST(TfConfig, WorkersAreNumberedAfterTheChiefAndCountThoseOfTheirHost) {
  const Identity first = of_tf("worker", "0"), second = of_tf("worker", "1");
  EXPECT_EQ(first.worker, 1);
  EXPECT_EQ(first.role(), "worker");
  EXPECT_EQ(first.local_workers, 1);
  EXPECT_FALSE(first.hosts_coordinator);
  EXPECT_EQ(second.worker, 2);
  EXPECT_EQ(second.local_worker, 1);  // The chief is on host a too.
  EXPECT_EQ(second.local_workers, 2);
  EXPECT_EQ(second.rendezvous->describe(), "a:2222");
}

TEST(TfConfig, ServersAndTheEvaluatorAreSideTasks) {
  const Identity server = of_tf("ps", "1");
  EXPECT_EQ(server.task, (Task{"ps", 1}));
  EXPECT_EQ(server.worker, -1);
  EXPECT_EQ(server.workers, 3);
  EXPECT_EQ(server.rendezvous->describe(), "a:2222");
  EXPECT_EQ(server.local_workers, 0);  // So it needs a token to reach those of other hosts.
  // TFJob does not list the evaluator, and gives it no index.
  const Identity evaluator = resolve(
      {{"TF_CONFIG", R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "evaluator"}})"}});
  EXPECT_EQ(evaluator.task, (Task{"evaluator", 0}));
  EXPECT_EQ(evaluator.rendezvous->describe(), "a:1");
}

TEST(TfConfig, WithoutAChiefWorker0CoordinatesAndOneWorkerAloneMeetsNobody) {
  const std::string two = R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker",)"
                          R"( "index": 0}})";
  const Identity first = resolve({{"TF_CONFIG", two}});
  EXPECT_FALSE(first.is_chief);
  EXPECT_TRUE(first.hosts_coordinator);
  const Identity alone =
      resolve({{"TF_CONFIG", R"({"cluster": {"master": ["a:1"]}, "task": {"type": "master"}})"}});
  EXPECT_TRUE(alone.is_chief);
  EXPECT_EQ(alone.workers, 1);
  EXPECT_FALSE(alone.rendezvous || alone.hosts_coordinator);
}

TEST(TfConfig, ItsWorkersMayChangeWhenTheEnvironmentSaysSo) {
  const auto of = [](const std::string& role, const std::string& elastic) {
    return resolve({{"TF_CONFIG", tf_config(role, "0")}, {"TRIREME_ELASTIC", elastic}});
  };
  const Identity chief = of("chief", "2:3"), worker = of("worker", "2:3");
  ASSERT_TRUE(chief.elastic && worker.elastic);
  EXPECT_EQ(worker.elastic->minimum, 2);
  EXPECT_EQ(worker.elastic->launcher, 0);  // No launcher's end is the end of the job.
  EXPECT_LT(chief.elastic->process, worker.elastic->process);
  EXPECT_THAT(worker.describe(), HasSubstr("continues with 2 or more of its workers"));
  std::this_thread::sleep_for(Milliseconds(2));
  EXPECT_GT(of("worker", "2:3").elastic->process, worker.elastic->process);  // Another start.
  EXPECT_FALSE(of("ps", "2:3").elastic);
  EXPECT_THAT(refusal_of({{"TF_CONFIG", tf_config("chief", "0")}, {"TRIREME_ELASTIC", "2:4"}}),
              AllOf(HasSubstr("TRIREME_ELASTIC=2:4"), HasSubstr("3 workers"), HasSubstr("MIN:3")));
  // A scheduler that coordinates the workers needs the numbers, and is none of them.
  const Identity scheduler = resolve({{"DMLC_ROLE", "scheduler"},
                                      {"DMLC_PS_ROOT_URI", "127.0.0.1"},
                                      {"DMLC_PS_ROOT_PORT", "9"},
                                      {"DMLC_NUM_WORKER", "3"},
                                      {"DMLC_NUM_SERVER", "1"},
                                      {"TRIREME_ELASTIC", "1:3"}});
  EXPECT_TRUE(scheduler.elastic);
  EXPECT_FALSE(scheduler.is_worker());
}

TEST(TfConfig, AnEmptyOneDoesNotCountAndTriremesVariablesCountMore) {
  EXPECT_EQ(resolve({{"TF_CONFIG", ""}}).launcher, Launcher::alone);
  EXPECT_EQ(resolve({{"TF_CONFIG", tf_config("chief", "0")},
                     {"TRIREME_WORKER", "0"},
                     {"TRIREME_WORKERS", "1"}})
                .launcher,
            Launcher::trireme);
}

TEST(TfConfig, NamesThePartThatIsWrong) {
  EXPECT_THAT(tf_refusal("{\"cluster\": "), AllOf(HasSubstr("TF_CONFIG"), HasSubstr("byte 13")));
  EXPECT_THAT(tf_refusal("[]"), HasSubstr("it is []"));
  EXPECT_THAT(tf_refusal("{}"), HasSubstr("no \"cluster\""));
  EXPECT_THAT(tf_refusal(R"({"cluster": {"worker": ["a:1"]}})"), HasSubstr("no \"task\""));
  EXPECT_THAT(tf_refusal(R"({"cluster": [], "task": {}})"), HasSubstr("\"cluster\" in it is []"));
  const auto with_cluster = [](const std::string& cluster) {
    return R"({"cluster": )" + cluster + R"(, "task": {"type": "worker", "index": 0}})";
  };
  EXPECT_THAT(tf_refusal(with_cluster(R"({"chief": ["a:1", "b:1"], "worker": ["c:1"]})")),
              HasSubstr("the cluster has 2 chiefs"));
  EXPECT_THAT(tf_refusal(with_cluster(R"({"evaluator": ["a:1", "b:1"], "worker": ["c:1"]})")),
              HasSubstr("the cluster has 2 evaluators"));
  EXPECT_THAT(tf_refusal(with_cluster(R"({"worker": ["a:1", "a:1"]})")),
              AllOf(HasSubstr("a:1 of worker 1"), HasSubstr("another task")));
  EXPECT_THAT(tf_refusal(with_cluster(R"({"worker": ["a"]})")),
              AllOf(HasSubstr("worker 0"), HasSubstr("not HOST:PORT")));
  EXPECT_THAT(tf_refusal(with_cluster(R"({"worker": [7]})")), HasSubstr("not HOST:PORT"));
  EXPECT_THAT(tf_refusal(with_cluster(R"({"worker": "a:1"})")), HasSubstr("role worker"));
  EXPECT_THAT(tf_refusal(with_cluster(R"({"helper": ["a:1"]})")),
              AllOf(HasSubstr("unknown role 'helper'"), HasSubstr("evaluator")));
  EXPECT_THAT(tf_refusal(with_cluster(R"({"ps": ["a:1"]})")),
              HasSubstr("neither a chief nor a worker"));
  EXPECT_THAT(tf_refusal(tf_config("worker", "2")), HasSubstr("the task is worker 2"));
  for (const char* const index : {"-1", "4294967296"})
    EXPECT_THAT(tf_refusal(tf_config("worker", index)), HasSubstr("worker -1"));
  EXPECT_THAT(tf_refusal(tf_config("worker", "\"0\"")), HasSubstr("\"index\""));
  EXPECT_THAT(tf_refusal(tf_config("trainer", "0")), HasSubstr("unknown role 'trainer'"));
  EXPECT_THAT(tf_refusal(R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker"}})"),
              HasSubstr("no \"index\""));
}

const Variables kDmlc{{"DMLC_ROLE", "worker"},
                      {"DMLC_PS_ROOT_URI", "10.0.0.1"},
                      {"DMLC_PS_ROOT_PORT", "9000"},
                      {"DMLC_NUM_WORKER", "3"},
                      {"DMLC_NUM_SERVER", "2"},
                      {"DMLC_WORKER_ID", "1"},
                      {"TRIREME_JOB_TOKEN", "a secret of this job"}};

Variables dmlc(const Variables& changes) {
  Variables variables = kDmlc;
  for (const auto& [name, value] : changes) {
    variables[name] = value;
    if (value.empty()) variables.erase(name);
  }
  return variables;
}

TEST(Dmlc, TheSchedulerCoordinatesWorkersAndServers) {
  const Identity worker = resolve(kDmlc);
  EXPECT_EQ(worker.launcher, Launcher::dmlc);
  EXPECT_EQ(worker.worker, 1);
  EXPECT_EQ(worker.workers, 3);
  EXPECT_EQ(worker.rendezvous->describe(), "10.0.0.1:9000");
  EXPECT_FALSE(worker.hosts_coordinator);
  const Identity server = resolve(dmlc({{"DMLC_ROLE", "server"}, {"DMLC_SERVER_ID", "1"}}));
  EXPECT_EQ(server.task, (Task{"ps", 1}));
  const Identity scheduler = resolve(dmlc({{"DMLC_ROLE", "scheduler"}, {"DMLC_WORKER_ID", ""}}));
  EXPECT_EQ(scheduler.role(), "scheduler");
  EXPECT_TRUE(scheduler.hosts_coordinator);
  EXPECT_EQ(scheduler.roles.find("ps")->count, 2);
  EXPECT_EQ(resolve(dmlc({{"DMLC_WORKER_ID", ""}, {"DMLC_TASK_ID", "2"}})).worker, 2);
}

TEST(Dmlc, NamesTheVariableThatIsMissingOrWrong) {
  for (const auto* name : {"DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT", "DMLC_NUM_WORKER",
                           "DMLC_NUM_SERVER", "DMLC_WORKER_ID"})
    EXPECT_THAT(refusal_of(dmlc({{name, ""}})), HasSubstr(name));
  EXPECT_THAT(refusal_of(dmlc({{"DMLC_WORKER_ID", "3"}})), HasSubstr("DMLC_WORKER_ID=3"));
  EXPECT_THAT(refusal_of(dmlc({{"DMLC_ROLE", "boss"}})), HasSubstr("DMLC_ROLE='boss'"));
  EXPECT_THAT(refusal_of(dmlc({{"DMLC_PS_ROOT_PORT", "70000"}})), HasSubstr("70000"));
}

const Variables kSlurm{{"SLURM_JOB_ID", "4711"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_PROCID", "3"},
                       {"SLURM_STEP_NUM_TASKS", "5"},
                       {"SLURM_LOCALID", "1"},
                       {"SLURM_NODEID", "1"},
                       {"SLURM_STEP_NODELIST", "n[08-10]"},
                       {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"}};

Variables slurm(const Variables& changes) {
  Variables variables = kSlurm;
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}

TEST(Slurm, AllTasksOfAStepAreWorkersAndMeetOnTheFirstNode) {
  const Identity worker = resolve(kSlurm);
  EXPECT_EQ(worker.launcher, Launcher::slurm);
  EXPECT_EQ(worker.worker, 3);
  EXPECT_EQ(worker.workers, 5);
  EXPECT_EQ(worker.local_worker, 1);
  EXPECT_EQ(worker.local_workers, 2);
  EXPECT_EQ(worker.rendezvous->host, "n08");
  EXPECT_EQ(worker.job_id, "slurm-4711.0");
  const Identity first =
      resolve(slurm({{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}, {"SLURM_NODEID", "0"}}));
  EXPECT_TRUE(first.hosts_coordinator);
  EXPECT_EQ(first.rendezvous->port, worker.rendezvous->port);
  EXPECT_EQ(resolve(slurm({{"MASTER_PORT", "29500"}})).rendezvous->port, 29500);
}

TEST(Slurm, AStepOfOneTaskAndAShellInAnAllocationAreAlone) {
  EXPECT_EQ(resolve(slurm({{"SLURM_STEP_NUM_TASKS", "1"}})).launcher, Launcher::alone);
  EXPECT_EQ(
      resolve({{"SLURM_JOB_ID", "4711"}, {"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}).launcher,
      Launcher::alone);
}

TEST(Slurm, OtherLaunchersInsideAnAllocationCountMore) {
  EXPECT_EQ(resolve(slurm({{"RANK", "0"}, {"WORLD_SIZE", "1"}})).launcher, Launcher::torchrun);
  EXPECT_EQ(
      resolve(slurm({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}})).launcher,
      Launcher::mpirun);
  EXPECT_EQ(resolve(slurm({{"PMI_RANK", "3"}, {"PMI_SIZE", "5"}})).launcher, Launcher::slurm);
}

TEST(Slurm, VariablesGiveTheLastTasksOtherRoles) {
  // Tasks 0 and 1 are on node 0, 2 and 3 on node 1, and 4 on node 2.
  const Variables roles{{"TRIREME_PS", "1"}, {"TRIREME_EVALUATOR", "1"}, {"TRIREME_CHIEF", "1"}};
  const auto task = [&](int number, const Variables& more = {}) {
    Variables variables = slurm(roles);
    variables["SLURM_PROCID"] = std::to_string(number);
    variables["SLURM_NODEID"] = std::to_string(number / 2);
    variables["SLURM_LOCALID"] = std::to_string(number % 2);
    for (const auto& [name, value] : more) variables[name] = value;
    return resolve(variables);
  };
  const Identity chief = task(0), worker = task(2), server = task(3), evaluator = task(4);
  EXPECT_EQ(chief.role(), "chief");
  EXPECT_TRUE(chief.hosts_coordinator);
  EXPECT_EQ(chief.workers, 3);
  EXPECT_EQ(chief.local_workers, 2);
  EXPECT_EQ(chief.roles.describe(), "1 ps and 1 evaluator");
  EXPECT_EQ(worker.worker, 2);
  EXPECT_FALSE(worker.is_chief);
  EXPECT_EQ(worker.local_worker, 0);
  EXPECT_EQ(worker.local_workers, 1);  // The server beside it is no worker.
  EXPECT_EQ(server.task, (Task{"ps", 0}));
  EXPECT_EQ(server.worker, -1);
  EXPECT_EQ(server.workers, 3);
  EXPECT_EQ(evaluator.task, (Task{"evaluator", 0}));
  EXPECT_EQ(evaluator.local_workers, 0);
  EXPECT_EQ(evaluator.rendezvous->describe(), chief.rendezvous->describe());
  EXPECT_THAT(server.describe(), AllOf(HasSubstr("ps 0"), HasSubstr("srun")));
  // Slurm may deal tasks out in turn, and then says which ones a node has.
  const Identity dealt = task(1, {{"SLURM_GTIDS", "1,4"}});
  EXPECT_EQ(dealt.local_worker, 0);
  EXPECT_EQ(dealt.local_workers, 1);
}

TEST(Slurm, AWorkerWithSideTasksOnOneHostIsNotAlone) {
  const Identity worker = resolve(slurm({{"SLURM_STEP_NUM_TASKS", "2"},
                                         {"SLURM_STEP_NODELIST", "here"},
                                         {"SLURM_STEP_TASKS_PER_NODE", "2"},
                                         {"SLURM_NODEID", "0"},
                                         {"SLURM_PROCID", "0"},
                                         {"SLURM_LOCALID", "0"},
                                         {"TRIREME_EVALUATOR", "1"}}));
  EXPECT_EQ(worker.workers, 1);
  EXPECT_TRUE(worker.hosts_coordinator);
  EXPECT_EQ(worker.rendezvous->host, "127.0.0.1");
}

TEST(Slurm, NamesTheVariableOfARoleThatIsWrong) {
  EXPECT_THAT(refusal_of(slurm({{"TRIREME_PS", "5"}})),
              AllOf(HasSubstr("TRIREME_PS=5"), HasSubstr("5 tasks")));
  EXPECT_THAT(refusal_of(slurm({{"TRIREME_PS", "4"}, {"TRIREME_EVALUATOR", "1"}})),
              HasSubstr("TRIREME_EVALUATOR=1"));
  EXPECT_THAT(refusal_of(slurm({{"TRIREME_EVALUATOR", "2"}})), HasSubstr("TRIREME_EVALUATOR=2"));
  EXPECT_THAT(refusal_of(slurm({{"TRIREME_PS", "some"}})), HasSubstr("TRIREME_PS"));
  EXPECT_THAT(refusal_of(slurm({{"TRIREME_PS", "1"}, {"SLURM_GTIDS", "0,1"}})),
              AllOf(HasSubstr("SLURM_PROCID=3"), HasSubstr("SLURM_GTIDS")));
}

TEST(Slurm, ReadsListsOfNodesAndTasks) {
  EXPECT_THAT(hosts_of_slurm("n[1-3,07],other,r[1-2]c[5,6]"),
              ElementsAre("n1", "n2", "n3", "n07", "other", "r1c5", "r1c6", "r2c5", "r2c6"));
  EXPECT_THAT(hosts_of_slurm("n[098-101]"), ElementsAre("n098", "n099", "n100", "n101"));
  EXPECT_THAT(tasks_of_slurm("2(x3),1"), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(tasks_of_slurm("4"), ElementsAre(4));
}

TEST(Slurm, NamesTheVariableThatIsMissingOrWrong) {
  EXPECT_THAT(refusal_of(slurm({{"SLURM_STEP_NODELIST", "n[1-"}})), HasSubstr("open bracket"));
  EXPECT_THAT(refusal_of(slurm({{"SLURM_STEP_NODELIST", "n[3-1]"}})), HasSubstr("'3-1'"));
  EXPECT_THAT(refusal_of(slurm({{"SLURM_STEP_NODELIST", "n[a]"}})), HasSubstr("'a'"));
  EXPECT_THAT(refusal_of(slurm({{"SLURM_STEP_TASKS_PER_NODE", "2(x"}})), HasSubstr("2(x"));
  EXPECT_THAT(refusal_of(slurm({{"SLURM_STEP_TASKS_PER_NODE", "2"}})), HasSubstr("does not fit"));
  EXPECT_THAT(refusal_of(slurm({{"SLURM_PROCID", "5"}})), HasSubstr("SLURM_PROCID=5"));
}

TEST(Identity, AWorkerMayBeTheChief) {
  const Identity chief =
      resolve({{"TRIREME_WORKER", "0"}, {"TRIREME_WORKERS", "1"}, {"TRIREME_ROLE", "chief"}});
  EXPECT_TRUE(chief.is_worker());
  EXPECT_EQ(chief.role(), "chief");
}

}  // namespace
}  // namespace trireme::membership::foreign_launchers_test
