#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <trireme/base/error.h>
#include <trireme/membership/identity.h>
#include <unistd.h>
#include <fstream>

namespace trireme::membership::identity_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Variables = std::map<std::string, std::string>;

const Variables kTrireme{{"TRIREME_WORKER", "2"},
                         {"TRIREME_WORKERS", "4"},
                         {"TRIREME_LOCAL_WORKER", "0"},
                         {"TRIREME_LOCAL_WORKERS", "2"},
                         {"TRIREME_GENERATION", "3"},
                         {"TRIREME_RENDEZVOUS", "10.0.0.1:4000"},
                         {"TRIREME_JOB_TOKEN", "a secret of this job"}};
const Variables kTorchrun{{"RANK", "1"},
                          {"WORLD_SIZE", "4"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "2"},
                          {"MASTER_ADDR", "node-1"},
                          {"MASTER_PORT", "29500"},
                          {"TORCHELASTIC_RUN_ID", "none"},
                          {"TORCHELASTIC_RESTART_COUNT", "2"},
                          {"TORCHELASTIC_USE_AGENT_STORE", "True"}};

Identity resolve(const Variables& variables) { return resolve_identity(Environment(variables)); }
Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}
Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

void expect_refused(const Variables& variables, const std::string& name) {
  try {
    resolve(variables);
    ADD_FAILURE() << name << " was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr(name));
  }
}

const Variables kSideTask{{"TRIREME_ROLE", "ps"},
                          {"TRIREME_INDEX", "1"},
                          {"TRIREME_WORKERS", "4"},
                          {"TRIREME_RENDEZVOUS", "10.0.0.1:4000"},
                          {"TRIREME_JOB_TOKEN", "a secret of this job"}};

TEST(Identity, OfASideTaskHasARoleAndNoWorkersNumber) {
  const Identity identity = resolve(kSideTask);
  EXPECT_EQ(identity.task, (Task{"ps", 1}));
  EXPECT_FALSE(identity.is_worker());
  EXPECT_EQ(identity.worker, -1);
  EXPECT_EQ(identity.workers, 4);
  EXPECT_THAT(identity.describe(), HasSubstr("ps 1 of a job that began with 4 workers"));
}

TEST(Identity, OfAWorkerHasTheTaskOfItsNumber) {
  EXPECT_EQ(resolve(kTrireme).task, (Task{"worker", resolve(kTrireme).worker}));
  const Identity named = resolve(with(kTrireme, "TRIREME_ROLE", "worker"));
  EXPECT_EQ(named.worker, resolve(kTrireme).worker);
}

TEST(Identity, OfASideTaskNamesWhatIsMissingOrWrong) {
  expect_refused(without(kSideTask, "TRIREME_INDEX"), "TRIREME_INDEX");
  expect_refused(without(kSideTask, "TRIREME_RENDEZVOUS"), "TRIREME_RENDEZVOUS");
  expect_refused(with(kSideTask, "TRIREME_INDEX", "-1"), "TRIREME_INDEX");
  expect_refused(with(kSideTask, "TRIREME_INDEX", "x"), "TRIREME_INDEX");
}

TEST(Identity, HasTheUnitOfAnElasticJob) {
  Variables elastic = with(with(kTrireme, "TRIREME_ELASTIC", "2:4"), "TRIREME_PROCESS", "7");
  EXPECT_EQ(resolve(elastic).elastic->unit, 1);
  EXPECT_EQ(resolve(with(elastic, "TRIREME_UNIT", "2")).elastic->unit, 2);
  expect_refused(with(elastic, "TRIREME_UNIT", "3"), "TRIREME_UNIT");
}

TEST(Identity, IsAloneWithoutALauncher) {
  const Identity identity = resolve({{"MASTER_ADDR", "somewhere"}});
  EXPECT_EQ(identity.launcher, Launcher::alone);
  EXPECT_EQ(identity.workers, 1);
  EXPECT_EQ(identity.worker, 0);
  EXPECT_FALSE(identity.rendezvous || identity.agent_store || identity.hosts_coordinator ||
               identity.token);
}

TEST(Identity, ReadsTheVariablesOfTriremeLaunch) {
  const Identity identity = resolve(kTrireme);
  EXPECT_EQ(identity.launcher, Launcher::trireme);
  EXPECT_EQ(identity.worker, 2);
  EXPECT_EQ(identity.workers, 4);
  EXPECT_EQ(identity.local_worker, 0);
  EXPECT_EQ(identity.local_workers, 2);
  EXPECT_EQ(identity.generation, 3);
  EXPECT_EQ(identity.rendezvous->describe(), "10.0.0.1:4000");
  EXPECT_FALSE(identity.hosts_coordinator);
  EXPECT_EQ(identity.token, "a secret of this job");
}

TEST(Identity, ThroughEtcdTheCoordinatorsAddressIsNotKnownBefore) {
  const Identity identity =
      resolve(with(kTrireme, "TRIREME_RENDEZVOUS", "etcd://10.0.0.5:2379/job"));
  EXPECT_FALSE(identity.rendezvous);
  EXPECT_EQ(identity.etcd->describe(), "etcd://10.0.0.5:2379/job");
  EXPECT_THAT(identity.describe(), HasSubstr("published at etcd://10.0.0.5:2379/job"));
  EXPECT_THROW(resolve(with(kTrireme, "TRIREME_RENDEZVOUS", "etcd://10.0.0.5:2379")), Error);
}

TEST(Identity, UnderTorchrunsAgentWorker0PublishesItsCoordinator) {
  const Identity worker = resolve(kTorchrun);
  EXPECT_EQ(worker.launcher, Launcher::torchrun);
  EXPECT_EQ(worker.worker, 1);
  EXPECT_EQ(worker.workers, 4);
  EXPECT_EQ(worker.local_worker, 1);
  EXPECT_EQ(worker.local_workers, 2);
  EXPECT_EQ(worker.generation, 2);
  EXPECT_EQ(worker.agent_store->describe(), "node-1:29500");
  EXPECT_FALSE(worker.rendezvous);
  EXPECT_FALSE(worker.hosts_coordinator);
  EXPECT_EQ(worker.job_id, "none-29500");
  EXPECT_TRUE(resolve(with(with(kTorchrun, "RANK", "0"), "LOCAL_RANK", "0")).hosts_coordinator);
}

TEST(Identity, WithoutAnAgentWorker0HoldsTheMastersPort) {
  const auto variables = without(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE");
  const Identity worker = resolve(variables);
  EXPECT_EQ(worker.rendezvous->describe(), "node-1:29500");
  EXPECT_FALSE(worker.agent_store);
  EXPECT_FALSE(worker.hosts_coordinator);
  const Identity zero = resolve(with(with(variables, "RANK", "0"), "LOCAL_RANK", "0"));
  EXPECT_EQ(zero.rendezvous->describe(), "node-1:29500");
  EXPECT_TRUE(zero.hosts_coordinator);
}

const std::map<std::string, std::string> kOpenMpi{{"OMPI_COMM_WORLD_RANK", "3"},
                                                  {"OMPI_COMM_WORLD_SIZE", "4"},
                                                  {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                                  {"OMPI_MCA_ess_base_jobid", "17"}};

TEST(Identity, MpirunGivesNumbersAndAJobButNoRendezvous) {
  const Identity worker = resolve(kOpenMpi);
  EXPECT_EQ(worker.launcher, Launcher::mpirun);
  EXPECT_EQ(worker.worker, 3);
  EXPECT_EQ(worker.workers, 4);
  EXPECT_EQ(worker.local_worker, 1);
  EXPECT_EQ(worker.local_workers, 2);
  EXPECT_EQ(worker.job_id, "mpirun-17");
  EXPECT_FALSE(worker.rendezvous || worker.agent_store || worker.hosts_coordinator);
  EXPECT_TRUE(
      resolve(with(with(kOpenMpi, "OMPI_COMM_WORLD_RANK", "0"), "OMPI_COMM_WORLD_LOCAL_RANK", "0"))
          .hosts_coordinator);
  EXPECT_THAT(worker.describe(),
              AllOf(HasSubstr("worker 3 of 4"), HasSubstr("started by mpirun")));
}

TEST(Identity, MpichsMpirunIsUnderstood) {
  const Identity worker = resolve(
      {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}});
  EXPECT_EQ(worker.launcher, Launcher::mpirun);
  EXPECT_EQ(worker.worker, 1);
  EXPECT_EQ(worker.local_workers, 2);
}

TEST(Identity, TriremesNumbersCountMoreThanMpiruns) {
  auto both = kOpenMpi;
  both.insert({{"TRIREME_WORKER", "0"}, {"TRIREME_WORKERS", "1"}});
  EXPECT_EQ(resolve(both).launcher, Launcher::trireme);
}

TEST(Identity, OneWorkerNeedsNoRendezvous) {
  const Identity torchrun = resolve({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  EXPECT_EQ(torchrun.launcher, Launcher::torchrun);
  EXPECT_FALSE(torchrun.rendezvous || torchrun.agent_store || torchrun.hosts_coordinator);
  const Identity trireme = resolve({{"TRIREME_WORKER", "0"}, {"TRIREME_WORKERS", "1"}});
  EXPECT_EQ(trireme.workers, 1);
  EXPECT_FALSE(trireme.rendezvous);
}

TEST(Identity, TriremesNumbersCountMoreThanTorchruns) {
  Variables both = kTorchrun;
  both.insert(kTrireme.begin(), kTrireme.end());
  EXPECT_EQ(resolve(both).launcher, Launcher::trireme);
  EXPECT_EQ(resolve(both).worker, 2);
}

TEST(Identity, NamesTheVariableThatIsMissing) {
  for (const auto name : {"TRIREME_WORKER", "TRIREME_WORKERS", "TRIREME_RENDEZVOUS"})
    expect_refused(without(kTrireme, name), name);
  for (const auto name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
    expect_refused(without(kTorchrun, name), name);
}

TEST(Identity, NamesTheVariableThatIsMalformedOrOutOfRange) {
  expect_refused(with(kTrireme, "TRIREME_WORKERS", "four"), "TRIREME_WORKERS='four'");
  expect_refused(with(kTrireme, "TRIREME_WORKERS", "0"), "TRIREME_WORKERS=0");
  expect_refused(with(kTrireme, "TRIREME_WORKER", "4"), "TRIREME_WORKER=4");
  expect_refused(with(kTrireme, "TRIREME_WORKER", "-1"), "TRIREME_WORKER=-1");
  expect_refused(with(kTrireme, "TRIREME_LOCAL_WORKER", "2"), "TRIREME_LOCAL_WORKER=2");
  expect_refused(with(kTrireme, "TRIREME_LOCAL_WORKERS", "5"), "TRIREME_LOCAL_WORKERS=5");
  expect_refused(with(kTrireme, "TRIREME_GENERATION", "x"), "TRIREME_GENERATION='x'");
  expect_refused(with(kTrireme, "TRIREME_RENDEZVOUS", "10.0.0.1"),
                 "TRIREME_RENDEZVOUS='10.0.0.1'");
  expect_refused(with(kTrireme, "TRIREME_RENDEZVOUS", "10.0.0.1:0"),
                 "TRIREME_RENDEZVOUS='10.0.0.1:0'");
  expect_refused(with(kTrireme, "TRIREME_JOB_TOKEN", ""), "TRIREME_JOB_TOKEN");
  expect_refused(with(kTorchrun, "RANK", "4"), "RANK=4");
  expect_refused(with(kTorchrun, "MASTER_PORT", "70000"), "MASTER_PORT=70000");
}

TEST(Identity, DescribesItselfWithoutTheToken) {
  EXPECT_THAT(
      resolve(kTrireme).describe(),
      AllOf(HasSubstr("worker 2 of 4"), HasSubstr("10.0.0.1:4000"), Not(HasSubstr("secret"))));
  EXPECT_THAT(resolve(kTorchrun).describe(),
              AllOf(HasSubstr("torchrun"), HasSubstr("node-1:29500")));
  EXPECT_THAT(resolve({}).describe(), HasSubstr("alone"));
}

class IdentityTokenFile : public testing::Test {
 protected:
  void SetUp() override {
    path = testing::TempDir() + "trireme-token-" + std::to_string(::getpid());
    std::ofstream(path) << "  a token from a file\n";
  }
  void TearDown() override { ::unlink(path.c_str()); }
  Variables variables() const { return {{"TRIREME_JOB_TOKEN_FILE", path}}; }
  std::string path;
};

TEST_F(IdentityTokenFile, IsReadWhenOnlyItsOwnerMay) {
  for (const mode_t mode : {0600, 0400}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    EXPECT_EQ(resolve(variables()).token, "a token from a file");
  }
}

TEST_F(IdentityTokenFile, AFileThatOthersMayReadIsRefusedNamingItsMode) {
  for (const mode_t mode : {0640, 0604, 0620}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    expect_refused(variables(), fmt::format("mode {:04o}", mode));
  }
}

TEST_F(IdentityTokenFile, AnEmptyFileIsRefused) {
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  std::ofstream(path) << "\n";
  expect_refused(variables(), path);
}

TEST_F(IdentityTokenFile, AShortTokenIsRefusedNamingItsLengthAndTheRule) {
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  std::ofstream(path) << "  15 bytes only..  \n";
  expect_refused(variables(),
                 "the job token in the file " + path +
                     " (TRIREME_JOB_TOKEN_FILE) has 15 bytes; it must have 16 or more");
}

TEST(Identity, ATokenThatIsShortIsRefusedWithoutShowingIt) {
  for (const std::string token : {"", "x", "15 bytes only.."}) {
    try {
      resolve(with(kTrireme, "TRIREME_JOB_TOKEN", token));
      ADD_FAILURE() << token;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr(fmt::format("TRIREME_JOB_TOKEN has {} bytes", token.size())),
                        HasSubstr("16 or more"), HasSubstr("try: the output of `openssl rand")));
      if (token.size() > 1) {
        EXPECT_THAT(error.what(), Not(HasSubstr(token)));
      }
    }
  }
  EXPECT_EQ(resolve(with(kTrireme, "TRIREME_JOB_TOKEN", "16 bytes exactly")).token,
            "16 bytes exactly");
}

TEST(Identity, WhiteSpaceAroundATokenDoesNotCountAsInItsFile) {
  EXPECT_EQ(resolve(with(kTrireme, "TRIREME_JOB_TOKEN", " 16 bytes exactly\n")).token,
            "16 bytes exactly");
  for (const std::string token : {"15 bytes only..\n", "                    "})
    expect_refused(with(kTrireme, "TRIREME_JOB_TOKEN", token), "it must have 16 or more");
}

TEST_F(IdentityTokenFile, AMissingFileIsNamed) {
  try {
    resolve({{"TRIREME_JOB_TOKEN_FILE", "/nowhere/token"}});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::not_found);
    EXPECT_THAT(error.what(), HasSubstr("/nowhere/token"));
  }
}

}  // namespace
}  // namespace trireme::membership::identity_test
