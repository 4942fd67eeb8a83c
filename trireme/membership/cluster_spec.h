// The tasks of a job that something else than Trireme starts, and the task of this process among
// them. Pure.
#pragma once
#include <trireme/membership/roles.h>
#include <trireme/net/message.h>
#include <map>
#include <string>
#include <vector>

namespace trireme::membership {

struct ClusterSpec {
  // [role][index]. An evaluator may be missing: TFJob names it to itself alone.
  std::map<std::string, std::vector<net::Endpoint>> addresses;
  Task task;  // This process, by the names of the cluster: chief, worker, ps or evaluator.

  int count(const std::string& role) const;
  int workers() const { return count(kChiefRole) + count(kWorkerRole); }
  // The number of a chief or worker among all workers; -1 for the other roles.
  int worker_number(const Task& of) const;
  const net::Endpoint& address(const Task& of) const;
  // The address of worker 0, where the workers meet.
  const net::Endpoint& meeting_place() const;
  // The workers on the host of `of`, in order.
  std::vector<int> workers_beside(const Task& of) const;
};

// Parses the environment variable TF_CONFIG, JSON such as
//   {"cluster": {"chief": ["a:2222"], "worker": ["b:2222"], "ps": ["c:2222"]},
//    "task": {"type": "worker", "index": 0}}
// TensorFlow 1 calls the chief master. Throws Error(invalid_argument) that names the part: text
// that is no JSON (with the place), an unknown role, two chiefs, no worker at all, an address that
// is no HOST:PORT or is there twice, a task that the cluster does not have.
ClusterSpec parse_tf_config(const std::string& text);

}  // namespace trireme::membership
