// The identity of a process in a pod of a Kubernetes job that no torchrun has numbered: an Indexed
// Job, a JobSet, a PyTorchJob or TrainJob of Kubeflow. resolve_identity() (identity.h) chooses.
//
//   number of this pod   RANK, else PET_NODE_RANK, else JOB_COMPLETION_INDEX. In a JobSet of
//   several
//                        Jobs the latter counts inside one Job, so JOB_GLOBAL_INDEX with
//                        GLOBAL_REPLICAS, or JOB_INDEX with REPLICATED_JOB_REPLICAS, say which
//                        Job it is, and WORLD_SIZE is divided evenly among the Jobs.
//   number of pods       WORLD_SIZE, else PET_NNODES
//   pod 0                MASTER_ADDR, else PET_MASTER_ADDR, else the name that JobSet gives it:
//                        JOBSET_NAME-REPLICATED_JOB_NAME-0-0.JOBSET_NAME
//   its port             MASTER_PORT, else PET_MASTER_PORT, else 29500
//
// Kubernetes itself sets JOB_COMPLETION_INDEX. Kubeflow's operators set RANK, WORLD_SIZE, MASTER_*
// and PET_*. The other variables are set in the pod template, where the labels of JobSet give them
// their values. Each pod has one worker; worker 0 hosts the coordinator.
#pragma once
#include <trireme/base/environment.h>
#include <trireme/membership/identity.h>
#include <string>

namespace trireme::membership {

// Whether this is a pod of such a job, and neither torchrun nor mpirun has started the process in
// it.
bool is_pod_of_a_job(const Environment& environment);

// Throws Error(invalid_argument) naming the variable that is missing or malformed, or two that
// contradict each other, or PET_NPROC_PER_NODE if only torchrun can start so many processes.
Identity from_kubernetes(const Environment& environment);

// The reason why JOB_COMPLETION_INDEX and the variables of JobSet make no job.
std::string why_no_job_of_pods(const Environment& environment);

}  // namespace trireme::membership
