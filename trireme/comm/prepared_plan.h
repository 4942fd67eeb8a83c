// A CollectivePlan made ready to run, and the choice among them by the size of the tensor: what
// every carrier that runs plans works out once a group, and not in every call. No torch.
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

  plan::CollectivePlan plan;
  // [round]: some rank overwrites a chunk that another reads in the same round. In shared memory
  // the new values are then kept aside until all have read the old ones; by messages a rank keeps
  // aside what arrives for a chunk that it has not sent yet.
  std::vector<bool> staged;
};

// The plans of one group. Any thread; a plan that was handed out stays where it is.
class PlanChoice {
 public:
  // `path`: threads, shm or tcp; `hosts`: [rank], empty: all on one. Throws Error(invalid_argument)
  // for an unknown path.
  PlanChoice(const std::string& path, int ranks, std::vector<int> hosts,
             const plan::CollectiveTable& table);

  // By what the table chooses for this size, the same on every rank. bytes: of the whole tensor
  // (reduce_scatter's input, all_gather's output). `root`: of a broadcast.
  const PreparedPlan& choose(plan::Collective collective, int64_t bytes, int root = 0) const;

 private:
  struct Choice {
    plan::SizeChoices sizes;
    std::vector<PreparedPlan> plans;  // Of each size, with root 0.
  };
  const PreparedPlan& with_root(plan::Algorithm algorithm, int root) const;

  int ranks_;
  std::vector<int> hosts_;
  std::map<plan::Collective, Choice> choices_;
  mutable std::mutex mutex_;
  mutable std::map<std::pair<plan::Algorithm, int>, std::unique_ptr<const PreparedPlan>>
      broadcasts_;  // Made when first asked for.
};

}  // namespace trireme::comm
