// The identity of a process in a job that a cluster's own means have started: Kubeflow's TFJob,
// the trackers of DMLC, Slurm. Each reads the variables of one of them; resolve_identity()
// (identity.h) chooses. They throw Error(invalid_argument) naming the variable.
#pragma once
#include <trireme/base/environment.h>
#include <trireme/membership/identity.h>

namespace trireme::membership {

// TF_CONFIG (cluster_spec.h). Worker 0, which is the chief if there is one, hosts the coordinator
// at its own address.
Identity from_tf_config(const Environment& environment);
// DMLC_ROLE (worker, server or scheduler), DMLC_PS_ROOT_URI and DMLC_PS_ROOT_PORT,
// DMLC_NUM_WORKER, DMLC_NUM_SERVER; the number of the process in DMLC_WORKER_ID, DMLC_SERVER_ID or
// DMLC_TASK_ID. The scheduler hosts the coordinator and does nothing else.
Identity from_dmlc(const Environment& environment);
// A step of srun with several tasks: SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID,
// SLURM_NODEID, SLURM_STEP_NODELIST, SLURM_STEP_TASKS_PER_NODE. Worker 0 hosts the
// coordinator on the first node, at MASTER_PORT or a port that follows from the job's number. All
// tasks are workers, unless TRIREME_PS=N or TRIREME_EVALUATOR=1 is the same for all: then the last
// tasks are N servers and, behind them, the evaluator. With TRIREME_CHIEF=1 task 0 is the chief.
Identity from_slurm(const Environment& environment);
// Whether srun has started this process as one of several. A shell inside an allocation, and a
// step of one task, are alone.
bool is_task_of_slurm(const Environment& environment);

// "node[1-3,07],other" -> node1, node2, node3, node07, other. Throws Error(invalid_argument).
std::vector<std::string> hosts_of_slurm(const std::string& list);
// "2(x3),1" -> 2, 2, 2, 1: the tasks on each node.
std::vector<int> tasks_of_slurm(const std::string& list);

}  // namespace trireme::membership
