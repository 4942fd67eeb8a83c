// The environments of processes under each launcher, and what Trireme makes of them. Those of
// OpenMPI 4.1.4 and torchrun were printed by these launchers. Those of OpenMPI 5, srun and
// PyTorchJob follow published ones, with other numbers and names of hosts. The others are put
// together from what the launchers' sources, examples and documentation say that they set.
// Variables that Trireme does not know are shortened to a few of each kind.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/membership/identity.h>
#include "environment_text.h"

namespace trireme::membership::launcher_environments_test {
namespace {

using testing::HasSubstr;

// "torchrun: worker 1 of 4, local 1 of 2, meets at HOST:PORT, coordinates"
std::string summary_of(const Identity& identity) {
  if (identity.launcher == Launcher::alone) return "alone";
  std::string text = fmt::format("{}: ", title_of(identity.launcher));
  if (identity.is_worker())
    text += fmt::format("{} {} of {}", identity.role(), identity.worker, identity.workers);
  else
    text += fmt::format("{} beside {}", identity.task.name(), identity.workers);
  text += fmt::format(", local {} of {}", identity.local_worker, identity.local_workers);
  if (identity.rendezvous) text += ", meets at " + identity.rendezvous->describe();
  if (identity.agent_store) text += ", store at " + identity.agent_store->describe();
  if (identity.hosts_coordinator) text += ", coordinates";
  return text;
}

struct Row {
  const char *name, *variables, *expected;
};

const Row kRows[] = {
    {"OpenMPI414", R"(HFI_NO_BACKTRACE=1
IPATH_NO_BACKTRACE=1
OMPI_APP_CTX_NUM_PROCS=2
OMPI_ARGV=train
OMPI_COMMAND=trireme
OMPI_COMM_WORLD_LOCAL_RANK=1
OMPI_COMM_WORLD_LOCAL_SIZE=2
OMPI_COMM_WORLD_NODE_RANK=1
OMPI_COMM_WORLD_RANK=1
OMPI_COMM_WORLD_SIZE=2
OMPI_FILE_LOCATION=/tmp/ompi.node.0/pid.26679/0/0
OMPI_FIRST_RANKS=0
OMPI_MCA_ess=^singleton
OMPI_MCA_ess_base_jobid=80281601
OMPI_MCA_ess_base_vpid=1
OMPI_MCA_initial_wdir=/tmp
OMPI_MCA_orte_ess_node_rank=1
OMPI_MCA_orte_ess_num_procs=2
OMPI_MCA_orte_hnp_uri=80281600.0;tcp://192.0.2.2:52851;tcp6://[fd00::2]:33767
OMPI_MCA_orte_launch=1
OMPI_MCA_orte_num_nodes=1
OMPI_NUM_APP_CTX=1
OMPI_UNIVERSE_SIZE=2
PMIX_HOSTNAME=node
PMIX_ID=80281601.1
PMIX_NAMESPACE=80281601
PMIX_RANK=1
PMIX_SERVER_URI4=80281600.0;tcp4://127.0.0.1:51697
PMIX_VERSION=4.2.2rc2)",
     "mpirun: worker 1 of 2, local 1 of 2"},
    {"OpenMPI5WithPrrte", R"(OMPI_ARGV=train
OMPI_COMMAND=trireme
OMPI_COMM_WORLD_LOCAL_RANK=1
OMPI_COMM_WORLD_LOCAL_SIZE=4
OMPI_COMM_WORLD_NODE_RANK=1
OMPI_COMM_WORLD_RANK=5
OMPI_COMM_WORLD_SIZE=8
OMPI_FILE_LOCATION=/tmp/ompi.12345/1/5
OMPI_MCA_cpu_type=x86_64
OMPI_MCA_initial_wdir=/data/me
OMPI_MCA_num_procs=8
OMPI_NUM_APP_CTX=1
OMPI_UNIVERSE_SIZE=32
OMPI_WORLD_LOCAL_SIZE=4
OMPI_WORLD_SIZE=8
PMIX_BFROP_BUFFER_TYPE=PMIX_BFROP_BUFFER_NON_DESC
PMIX_GDS_MODULE=shmem2,hash
PMIX_HOSTNAME=node18
PMIX_NAMESPACE=prterun-node18-12345@1
PMIX_RANK=5
PMIX_SERVER_TMPDIR=/tmp/ompi.12345
PMIX_SERVER_URI41=prterun-node18-12345@0.0;tcp4://10.20.30.40:45678
PMIX_VERSION=5.0.9a1
PRTE_LAUNCHED=1)",
     "mpirun: worker 5 of 8, local 1 of 4"},
    {"MpichWithHydra", R"(GFORTRAN_UNBUFFERED_PRECONNECTED=y
HYDI_CONTROL_FD=8
MPIR_CVAR_CH3_INTERFACE_HOSTNAME=node1
MPI_LOCALNRANKS=4
MPI_LOCALRANKID=2
PMI_FD=9
PMI_RANK=2
PMI_SIZE=8)",
     "mpirun: worker 2 of 8, local 2 of 4"},
    {"IntelMpi", R"(FI_PROVIDER_PATH=/opt/intel/oneapi/mpi/2021.13/opt/mpi/libfabric/lib/prov
HYDI_CONTROL_FD=8
I_MPI_HYDRA_BOOTSTRAP=ssh
I_MPI_ROOT=/opt/intel/oneapi/mpi/2021.13
MPI_LOCALNRANKS=2
MPI_LOCALRANKID=1
PMI_FD=9
PMI_RANK=4
PMI_SIZE=5)",
     "mpirun: worker 4 of 5, local 1 of 2"},
    {"HydraInsideAnAllocationOfSlurm", R"(HYDI_CONTROL_FD=8
MPI_LOCALNRANKS=2
MPI_LOCALRANKID=0
PMI_RANK=2
PMI_SIZE=4
SLURM_JOB_ID=4711
SLURM_LOCALID=0
SLURM_NODEID=1
SLURM_PROCID=1
SLURM_STEP_ID=0
SLURM_STEP_NODELIST=n[01-02]
SLURM_STEP_NUM_TASKS=2
SLURM_STEP_TASKS_PER_NODE=1(x2))",
     "mpirun: worker 2 of 4, local 0 of 2"},
    {"SrunWithPmix", R"(PMIX_BFROP_BUFFER_TYPE=PMIX_BFROP_BUFFER_NON_DESC
PMIX_GDS_MODULE=ds21,ds12,hash
PMIX_HOSTNAME=sh04-10n06
PMIX_NAMESPACE=slurm.pmix.22902023.0
PMIX_RANK=3
PMIX_SERVER_TMPDIR=/var/spool/slurmd/pmix.22902023.0/
SLURMD_NODENAME=sh04-10n06
SLURM_CLUSTER_NAME=sherlock
SLURM_CPUS_PER_TASK=4
SLURM_DISTRIBUTION=block
SLURM_GTIDS=2,3
SLURM_JOBID=22902023
SLURM_JOB_ID=22902023
SLURM_JOB_NODELIST=sh04-10n[05-06]
SLURM_JOB_NUM_NODES=2
SLURM_LAUNCH_NODE_IPADDR=10.19.0.68
SLURM_LOCALID=1
SLURM_MPI_TYPE=pmix
SLURM_NNODES=2
SLURM_NODEID=1
SLURM_NODELIST=sh04-10n[05-06]
SLURM_NPROCS=4
SLURM_NTASKS=4
SLURM_PMIXP_ABORT_AGENT_PORT=38761
SLURM_PMIX_MAPPING_SERV=(vector,(0,2,2))
SLURM_PROCID=3
SLURM_STEPID=0
SLURM_STEP_ID=0
SLURM_STEP_LAUNCHER_PORT=37564
SLURM_STEP_NODELIST=sh04-10n[05-06]
SLURM_STEP_NUM_NODES=2
SLURM_STEP_NUM_TASKS=4
SLURM_STEP_TASKS_PER_NODE=2(x2)
SLURM_TASKS_PER_NODE=2(x2)
MASTER_PORT=29500)",
     "srun: worker 3 of 4, local 1 of 2, meets at sh04-10n05:29500"},
    {"SrunWithPmi2", R"(PMI_FD=16
PMI_JOBID=4711.1
PMI_RANK=0
PMI_SIZE=2
SLURM_GTIDS=0,1
SLURM_JOB_ID=4711
SLURM_LOCALID=0
SLURM_MPI_TYPE=pmi2
SLURM_NODEID=0
SLURM_PROCID=0
SLURM_STEP_ID=1
SLURM_STEP_NODELIST=n1
SLURM_STEP_NUM_TASKS=2
SLURM_STEP_TASKS_PER_NODE=2)",
     "srun: worker 0 of 2, local 0 of 2, coordinates"},
    {"AShellInAnAllocationOfSlurm", R"(SLURM_GTIDS=0
SLURM_JOBID=1720714
SLURM_JOB_ID=1720714
SLURM_JOB_NODELIST=GPU71E4
SLURM_LOCALID=0
SLURM_MPI_TYPE=pmix
SLURM_NODEID=0
SLURM_PMIX_MAPPING_SERV=(vector,(0,1,1))
SLURM_PROCID=0
SLURM_STEPID=4294967290
SLURM_STEP_ID=4294967290
SLURM_STEP_NODELIST=GPU71E4
SLURM_STEP_NUM_NODES=1
SLURM_STEP_NUM_TASKS=1
SLURM_STEP_TASKS_PER_NODE=1
SLURM_TASKS_PER_NODE=8)",
     "alone"},
    {"TorchrunStandalone", R"(GROUP_RANK=0
GROUP_WORLD_SIZE=1
LOCAL_RANK=1
LOCAL_WORLD_SIZE=2
MASTER_ADDR=localhost
MASTER_PORT=32841
OMP_NUM_THREADS=1
RANK=1
ROLE_NAME=default
ROLE_RANK=1
ROLE_WORLD_SIZE=2
TORCHELASTIC_ERROR_FILE=/tmp/torchelastic_1yhjjk0q/attempt_0/1/error.json
TORCHELASTIC_MAX_RESTARTS=0
TORCHELASTIC_RESTART_COUNT=0
TORCHELASTIC_RUN_ID=3b9bcaf9-5969-41c2-a53f-8b1589283b86
TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT
TORCHELASTIC_USE_AGENT_STORE=True
TORCH_NCCL_ASYNC_ERROR_HANDLING=1
WORLD_SIZE=2)",
     "torchrun: worker 1 of 2, local 1 of 2, store at localhost:32841"},
    {"TorchrunOnAnAddressOfIpv6", R"(LOCAL_RANK=0
LOCAL_WORLD_SIZE=1
MASTER_ADDR=::1
MASTER_PORT=29500
RANK=0
TORCHELASTIC_RESTART_COUNT=0
TORCHELASTIC_RUN_ID=none
TORCHELASTIC_USE_AGENT_STORE=False
WORLD_SIZE=2)",
     "torchrun: worker 0 of 2, local 0 of 1, meets at [::1]:29500, coordinates"},
    {"TFJob",
     R"(TF_CONFIG={"cluster":{"chief":["mnist-chief-0.ns.svc:2222"],)"
     R"("worker":["mnist-worker-0.ns.svc:2222","mnist-worker-1.ns.svc:2222"]},)"
     R"("task":{"type":"worker","index":1},"environment":"cloud"})",
     "TF_CONFIG: worker 2 of 3, local 0 of 1, meets at mnist-chief-0.ns.svc:2222"},
    {"TfConfigOnAddressesOfIpv6",
     R"(TF_CONFIG={"cluster":{"worker":["[2001:db8::1]:2222","[2001:db8::2]:2222"]},)"
     R"("task":{"type":"worker","index":0}})",
     "TF_CONFIG: worker 0 of 2, local 0 of 1, meets at [2001:db8::1]:2222, coordinates"},
    {"PyTorchJob", R"(HOSTNAME=dist-worker-0
KUBERNETES_SERVICE_HOST=10.96.0.1
MASTER_ADDR=dist-master-0
MASTER_PORT=23456
PET_MASTER_ADDR=dist-master-0
PET_MASTER_PORT=23456
PET_NNODES=3
PET_NODE_RANK=1
PET_NPROC_PER_NODE=auto
PYTHONUNBUFFERED=1
RANK=1
WORLD_SIZE=3)",
     "Kubernetes: worker 1 of 3, local 0 of 1, meets at dist-master-0:23456"},
    {"PyTorchJobBeforeVersion17", R"(HOSTNAME=dist-master-0
KUBERNETES_SERVICE_HOST=10.96.0.1
MASTER_ADDR=dist-master-0
MASTER_PORT=23456
PYTHONUNBUFFERED=0
RANK=0
WORLD_SIZE=2)",
     "Kubernetes: worker 0 of 2, local 0 of 1, meets at dist-master-0:23456, coordinates"},
    {"PyTorchJobWithTorchrunInside", R"(KUBERNETES_SERVICE_HOST=10.96.0.1
PET_MASTER_ADDR=dist-master-0
PET_MASTER_PORT=23456
PET_NNODES=2
PET_NODE_RANK=1
PET_NPROC_PER_NODE=8
GROUP_RANK=1
LOCAL_RANK=3
LOCAL_WORLD_SIZE=8
MASTER_ADDR=dist-master-0
MASTER_PORT=23456
RANK=11
TORCHELASTIC_RUN_ID=none
TORCHELASTIC_USE_AGENT_STORE=True
WORLD_SIZE=16)",
     "torchrun: worker 11 of 16, local 3 of 8, store at dist-master-0:23456"},
    {"TrainJobOfKubeflow", R"(HOSTNAME=fine-tune-node-0-2
JOB_COMPLETION_INDEX=2
KUBERNETES_SERVICE_HOST=10.96.0.1
PET_MASTER_ADDR=fine-tune-node-0-0.fine-tune
PET_MASTER_PORT=29400
PET_NNODES=4
PET_NODE_RANK=2
PET_NPROC_PER_NODE=1)",
     "Kubernetes: worker 2 of 4, local 0 of 1, meets at fine-tune-node-0-0.fine-tune:29400"},
    {"IndexedJob", R"(HOSTNAME=train-3
JOB_COMPLETION_INDEX=3
KUBERNETES_SERVICE_HOST=10.96.0.1
KUBERNETES_SERVICE_PORT=443
MASTER_ADDR=train-0.train
MASTER_PORT=29500
WORLD_SIZE=4)",
     "Kubernetes: worker 3 of 4, local 0 of 1, meets at train-0.train:29500"},
    {"IndexedJobOnAnAddressOfIpv6", R"(HOSTNAME=train-0
JOB_COMPLETION_INDEX=0
MASTER_ADDR=[2001:db8::7]
WORLD_SIZE=2)",
     "Kubernetes: worker 0 of 2, local 0 of 1, meets at [2001:db8::7]:29500, coordinates"},
    {"IndexedJobWithARankFromItsAnnotation", R"(HOSTNAME=train-1
JOB_COMPLETION_INDEX=1
KUBERNETES_SERVICE_HOST=10.96.0.1
MASTER_ADDR=train-0.train
MASTER_PORT=3389
RANK=1
WORLD_SIZE=2)",
     "Kubernetes: worker 1 of 2, local 0 of 1, meets at train-0.train:3389"},
    {"IndexedJobOfIndependentPods", R"(HOSTNAME=sweep-5-x7k2p
JOB_COMPLETION_INDEX=5
KUBERNETES_SERVICE_HOST=10.96.0.1)",
     "alone"},
    {"JobSetOfOneJob", R"(HOSTNAME=pytorch-workers-0-1
JOBSET_NAME=pytorch
JOB_COMPLETION_INDEX=1
JOB_INDEX=0
KUBERNETES_SERVICE_HOST=10.96.0.1
REPLICATED_JOB_NAME=workers
WORLD_SIZE=4)",
     "Kubernetes: worker 1 of 4, local 0 of 1, meets at pytorch-workers-0-0.pytorch:29500"},
    {"JobSetOfSeveralJobsOfOneName", R"(HOSTNAME=llm-slice-1-0
JOBSET_NAME=llm
JOB_COMPLETION_INDEX=0
JOB_INDEX=1
KUBERNETES_SERVICE_HOST=10.96.0.1
MASTER_PORT=1234
REPLICATED_JOB_NAME=slice
REPLICATED_JOB_REPLICAS=2
WORLD_SIZE=8)",
     "Kubernetes: worker 4 of 8, local 0 of 1, meets at llm-slice-0-0.llm:1234"},
    {"JobSetOfOneNameWithAllItsLabels", R"(GLOBAL_REPLICAS=2
JOBSET_NAME=llm
JOB_COMPLETION_INDEX=1
JOB_GLOBAL_INDEX=1
JOB_INDEX=1
REPLICATED_JOB_NAME=slice
REPLICATED_JOB_REPLICAS=2
WORLD_SIZE=4)",
     "Kubernetes: worker 3 of 4, local 0 of 1, meets at llm-slice-0-0.llm:29500"},
    {"JobSetOfJobsOfSeveralNames", R"(GLOBAL_REPLICAS=3
HOSTNAME=mixed-big-0-1
JOBSET_NAME=mixed
JOB_COMPLETION_INDEX=1
JOB_GLOBAL_INDEX=2
JOB_INDEX=0
KUBERNETES_SERVICE_HOST=10.96.0.1
MASTER_ADDR=mixed-small-0-0.mixed
REPLICATED_JOB_NAME=big
REPLICATED_JOB_REPLICAS=1
WORLD_SIZE=6)",
     "Kubernetes: worker 5 of 6, local 0 of 1, meets at mixed-small-0-0.mixed:29500"},
    {"JobSetWithTorchrunInside", R"(JOB_COMPLETION_INDEX=3
KUBERNETES_SERVICE_HOST=10.96.0.1
LOCAL_RANK=0
LOCAL_WORLD_SIZE=1
MASTER_ADDR=pytorch-workers-0-0.pytorch
MASTER_PORT=3389
RANK=3
TORCHELASTIC_RUN_ID=123
TORCHELASTIC_USE_AGENT_STORE=True
WORLD_SIZE=4)",
     "torchrun: worker 3 of 4, local 0 of 1, store at pytorch-workers-0-0.pytorch:3389"},
    {"MPIJobUnderOpenMpi", R"(HOSTNAME=pi-launcher-8xq2f
KUBERNETES_SERVICE_HOST=10.96.0.1
K_MPI_JOB_ROLE=launcher
OMPI_COMM_WORLD_LOCAL_RANK=0
OMPI_COMM_WORLD_LOCAL_SIZE=1
OMPI_COMM_WORLD_RANK=1
OMPI_COMM_WORLD_SIZE=2
OMPI_MCA_ess_base_jobid=1417281537
OMPI_MCA_orte_default_hostfile=/etc/mpi/hostfile
OMPI_MCA_orte_keep_fqdn_hostnames=true
OMPI_MCA_plm_rsh_args=-o ConnectionAttempts=10
PMIX_RANK=1)",
     "mpirun: worker 1 of 2, local 0 of 1"},
    {"TheLauncherOfAnMPIJobItself", R"(HOSTNAME=pi-launcher-8xq2f
KUBERNETES_SERVICE_HOST=10.96.0.1
K_MPI_JOB_ROLE=launcher
OMPI_MCA_orte_default_hostfile=/etc/mpi/hostfile
OMPI_MCA_orte_keep_fqdn_hostnames=true
OMPI_MCA_orte_set_default_slots=1
OMPI_MCA_plm_rsh_args=-o ConnectionAttempts=10)",
     "alone"},
    {"MpirunInPodsOfAnIndexedJob", R"(JOB_COMPLETION_INDEX=0
KUBERNETES_SERVICE_HOST=10.96.0.1
OMPI_COMM_WORLD_LOCAL_RANK=1
OMPI_COMM_WORLD_LOCAL_SIZE=2
OMPI_COMM_WORLD_RANK=1
OMPI_COMM_WORLD_SIZE=4
PET_NNODES=2
PMIX_NAMESPACE=prterun-train-launcher-0-0-33@1)",
     "mpirun: worker 1 of 4, local 1 of 2"},
    {"Dmlc", R"(DMLC_NODE_HOST=10.0.0.2
DMLC_NUM_SERVER=2
DMLC_NUM_WORKER=3
DMLC_PS_ROOT_PORT=9091
DMLC_PS_ROOT_URI=::1
DMLC_ROLE=server
DMLC_TASK_ID=1)",
     "DMLC_ROLE: ps 1 beside 3, local 0 of 3, meets at [::1]:9091"},
    {"TriremeLaunch", R"(TRIREME_GENERATION=0
TRIREME_LOCAL_WORKER=1
TRIREME_LOCAL_WORKERS=2
TRIREME_RENDEZVOUS=[fe80::1%eth0]:40123
TRIREME_WORKER=1
TRIREME_WORKERS=2)",
     "trireme launch: worker 1 of 2, local 1 of 2, meets at [fe80::1%eth0]:40123"},
};

class LauncherEnvironments : public testing::TestWithParam<Row> {};

TEST_P(LauncherEnvironments, AreUnderstood) {
  EXPECT_EQ(summary_of(resolve_identity(environment_of(GetParam().variables))),
            GetParam().expected);
}

INSTANTIATE_TEST_SUITE_P(Real, LauncherEnvironments, testing::ValuesIn(kRows),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(LauncherEnvironment, NamesTheJobOfOpenMpiSoThatTwoJobsOnOneHostDoNotMeet) {
  const auto job_of = [](const char* variables) {
    return resolve_identity(environment_of(variables)).job_id;
  };
  EXPECT_EQ(job_of(kRows[0].variables), "mpirun-80281601");
  EXPECT_EQ(job_of(kRows[1].variables), "mpirun-prterun-node18-12345@1");
}

TEST(LauncherEnvironment, OfKubernetesMayBeElastic) {
  const Identity identity = resolve_identity(environment_of(
      "JOB_COMPLETION_INDEX=1\nWORLD_SIZE=4\nMASTER_ADDR=train-0.train\nTRIREME_ELASTIC=2:4"));
  ASSERT_TRUE(identity.elastic);
  EXPECT_EQ(identity.elastic->minimum, 2);
  EXPECT_THAT(identity.describe(), HasSubstr("started by Kubernetes"));
}

}  // namespace
}  // namespace trireme::membership::launcher_environments_test
