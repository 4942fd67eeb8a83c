// The hosts of a job's ranks, and the way in which messages travel between them. Pure.
#pragma once
#include <trireme/base/json.h>
#include <trireme/plan/collective_table.h>
#include <optional>
#include <string>
#include <vector>

namespace trireme::plan {

// A way for messages between some ranks.
struct Carrier {
  // threads, shm and tcp run CollectivePlans; gloo, mpi and nccl have algorithms of their own.
  std::string path = "threads";
  std::vector<int> ranks;  // The ranks of the job that it joins, in ascending order.
  // [index in `ranks`]: a number for its host, by which algorithms are chosen. If empty, all are
  // on one host.
  std::vector<int> hosts;

  int size() const { return static_cast<int>(ranks.size()); }
  bool runs_plans() const { return path == "threads" || path == "shm" || path == "tcp"; }
  // Whether operations continue while backward computes.
  bool runs_in_background() const { return path != "threads" && path != "shm"; }
};

// The hosts and carriers of the ranks of a job. Ranks are on one host here exactly if they share
// memory.
struct Placement {
  std::vector<int> hosts;       // [rank]: its host. Hosts are in the order of their first ranks.
  std::vector<Carrier> inside;  // [host]: joins its ranks.
  // Joins the first ranks of the hosts; empty if there is only one host.
  std::optional<Carrier> between;
  CollectiveTable table;  // The algorithms of carriers that run plans.

  int ranks() const { return static_cast<int>(hosts.size()); }
  int host_count() const { return static_cast<int>(inside.size()); }
  // Whether an all-reduce of all ranks continues while backward computes.
  bool runs_in_background() const;
  std::string describe() const;  // "4 ranks on 2 hosts: shm, gloo between hosts"
  Json to_json() const;
};

// All ranks on one host.
Placement on_one_host(int ranks, const std::string& path, const CollectiveTable& table = {});
// Every rank on a host of its own.
Placement each_alone(int ranks, const std::string& path, const CollectiveTable& table = {});

// The placement of some ranks of a job, which are numbered by their place in `ranks`: those of a
// group along an axis of a mesh. They are in ascending order.
Placement part_of(const Placement& job, const std::vector<int>& ranks);

// Throws Error(internal) naming the rank that is on no host, on two hosts, or in no carrier.
void check(const Placement& placement);

}  // namespace trireme::plan
