// A CollectivePlan that is ready to run, and the choice of a plan by the size of the tensor.
// Backends that run plans prepare them once per group instead of once per call; no torch.
#pragma once
#include <trireme/plan/collective_table.h>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace trireme::comm {

struct PreparedPlan {
  explicit PreparedPlan(plan::CollectivePlan ready);

  // The result of plan.bytes_sent(), without its loop over the rounds: groups ask in every call.
  int64_t bytes_sent(int rank, int64_t elements, int64_t element_bytes) const;

  plan::CollectivePlan plan;
  // [round]: true if a rank overwrites a chunk that another rank reads in the same round. In
  // shared memory the new values are then kept aside until all ranks have read the old ones. With
  // messages a rank keeps aside a chunk that arrives before it has sent its own.
  std::vector<bool> staged;
  // [rank * (chunks + 1) + c]: the number of sends of `rank` to others that carry one of the
  // chunks 0..c-1.
  std::vector<int64_t> sends_below;
};

// The plans of one group. Any thread. A reference to a plan stays valid.
class PlanChoice {
 public:
  // `path`: threads, shm or tcp. `hosts`: [rank]; if empty, all ranks are on one host. Throws
  // Error(invalid_argument) for an unknown path.
  PlanChoice(const std::string& path, int ranks, std::vector<int> hosts,
             const plan::CollectiveTable& table);

  // The plan that the table chooses for this size; it is the same on every rank. `bytes` is the
  // size of the whole tensor (reduce_scatter's input, all_gather's output); `root` is that
  // of a broadcast.
  const PreparedPlan& choose(plan::Collective collective, int64_t bytes, int root = 0) const;
  // The bytes that `rank` sends in the plan that choose() gives for a whole tensor of this size.
  int64_t bytes_sent(int rank, plan::Collective collective, int64_t elements,
                     int64_t element_bytes, int root) const;
  const std::vector<int>& hosts() const { return hosts_; }
  const plan::CollectiveTable& table() const { return table_; }

 private:
  struct Choice {
    plan::SizeChoices sizes;
    std::vector<PreparedPlan> plans;  // The plan for each size, with root 0.
  };
  const PreparedPlan& with_root(plan::Algorithm algorithm, int root) const;

  int ranks_;
  std::vector<int> hosts_;
  plan::CollectiveTable table_;
  std::map<plan::Collective, Choice> choices_;
  mutable std::mutex mutex_;
  // Made at the first use.
  mutable std::map<std::pair<plan::Algorithm, int>, std::unique_ptr<const PreparedPlan>>
      broadcasts_;
};

}  // namespace trireme::comm
