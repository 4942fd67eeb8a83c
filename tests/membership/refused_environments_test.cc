// Environments of launchers that contradict themselves, and a part of the message about each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/membership/identity.h>
#include "../base/expect_error.h"
#include "environment_text.h"

namespace trireme::membership::refused_environments_test {
namespace {

using testing::HasSubstr;

struct Row {
  const char *name, *variables, *part_of_message;
};

class RefusedEnvironments : public testing::TestWithParam<Row> {};

TEST_P(RefusedEnvironments, NameTheVariable) {
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [] { resolve_identity(environment_of(GetParam().variables)); }),
              HasSubstr(GetParam().part_of_message));
}

const Row kRefused[] = {
    {"ThePodTemplateOfJobSetsExampleWithoutItsTorchrun", R"(JOB_COMPLETION_INDEX=1
KUBERNETES_SERVICE_HOST=10.96.0.1
MASTER_ADDR=pytorch-workers-0-0.pytorch
MASTER_PORT=3389
RANK=1)",
     "WORLD_SIZE is missing, but RANK is set"},
    {"AMasterWithoutANumberOfPods", "JOB_COMPLETION_INDEX=1\nMASTER_ADDR=train-0.train",
     "WORLD_SIZE is missing, but MASTER_ADDR is set"},
    {"ANumberOfPodsWithoutAMaster", "JOB_COMPLETION_INDEX=1\nWORLD_SIZE=2",
     "MASTER_ADDR is missing"},
    {"AnIndexBeyondTheNumberOfPods", "JOB_COMPLETION_INDEX=4\nWORLD_SIZE=4\nMASTER_ADDR=a",
     "JOB_COMPLETION_INDEX=4 is out of range"},
    {"AnIndexThatIsNoNumber", "JOB_COMPLETION_INDEX=x\nWORLD_SIZE=4\nMASTER_ADDR=a",
     "JOB_COMPLETION_INDEX='x'"},
    {"ARankThatAllPodsShare", "JOB_COMPLETION_INDEX=1\nRANK=0\nWORLD_SIZE=2\nMASTER_ADDR=a",
     "RANK=0, but JOB_COMPLETION_INDEX=1"},
    {"ARankBeyondTheNumberOfPods", "KUBERNETES_SERVICE_HOST=h\nRANK=2\nWORLD_SIZE=2",
     "RANK=2 is out of range"},
    {"ANumberOfPodsWithoutARank", "KUBERNETES_SERVICE_HOST=h\nWORLD_SIZE=2",
     "RANK is missing, but WORLD_SIZE is set"},
    {"TwoRanks", "KUBERNETES_SERVICE_HOST=h\nRANK=1\nPET_NODE_RANK=0\nWORLD_SIZE=2",
     "RANK=1, but PET_NODE_RANK=0"},
    {"TwoNumbersOfPods", "JOB_COMPLETION_INDEX=0\nWORLD_SIZE=2\nPET_NNODES=3",
     "WORLD_SIZE=2, but PET_NNODES=3"},
    {"TwoMasters", "JOB_COMPLETION_INDEX=0\nWORLD_SIZE=2\nMASTER_ADDR=a\nPET_MASTER_ADDR=b",
     "MASTER_ADDR=a, but PET_MASTER_ADDR=b"},
    {"APortOutOfRange", "JOB_COMPLETION_INDEX=0\nWORLD_SIZE=2\nMASTER_ADDR=a\nMASTER_PORT=0",
     "MASTER_PORT=0"},
    {"APyTorchJobOfSeveralProcessesInAPod", R"(KUBERNETES_SERVICE_HOST=h
MASTER_ADDR=dist-master-0
MASTER_PORT=23456
PET_NNODES=2
PET_NODE_RANK=1
PET_NPROC_PER_NODE=8
RANK=1
WORLD_SIZE=16)",
     "PET_NPROC_PER_NODE=8"},
    {"AnElasticPyTorchJobWithoutTorchrun", R"(KUBERNETES_SERVICE_HOST=h
PET_MAX_RESTARTS=3
PET_NNODES=1:4
PET_RDZV_BACKEND=c10d
PET_RDZV_ENDPOINT=elastic-worker-0:23456)",
     "PET_NNODES=1:4"},
    {"AJobOfAJobSetThatDoesNotKnowTheOthers",
     "JOB_COMPLETION_INDEX=0\nJOB_INDEX=1\nWORLD_SIZE=4\nMASTER_ADDR=a",
     "JOB_INDEX=1, but REPLICATED_JOB_REPLICAS is missing"},
    {"JobsOfAJobSetThatDoNotDivideThePods",
     "JOB_COMPLETION_INDEX=0\nJOB_INDEX=1\nREPLICATED_JOB_REPLICAS=2\nWORLD_SIZE=5",
     "WORLD_SIZE=5 is no multiple of REPLICATED_JOB_REPLICAS=2"},
    {"ALocalRankWithoutTheNumberOnItsHost",
     "RANK=1\nWORLD_SIZE=2\nLOCAL_RANK=1\nMASTER_ADDR=a\nMASTER_PORT=1",
     "LOCAL_WORLD_SIZE is missing, but LOCAL_RANK is set"},
};

INSTANTIATE_TEST_SUITE_P(Contradicting, RefusedEnvironments, testing::ValuesIn(kRefused),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace trireme::membership::refused_environments_test
