// Decides which sample goes to which replica. The key is (epoch, samples consumed), never the step
// or the number of ranks: the global batch at a position holds the same samples for every world
// size. The functions are pure.
#pragma once
#include <trireme/base/json.h>
#include <trireme/plan/data_position.h>
#include <trireme/plan/sample_order.h>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace trireme::plan {

struct DataPlanOptions {
  int64_t samples = 0;  // The places of an epoch: the size of the data set, or of its mixture.
  int64_t batch = 1;    // The global batch: samples per optimizer step, over all replicas.
  uint64_t seed = 0;
  OrderOptions shuffle;    // Each epoch has another order, unless it is false.
  bool drop_last = false;  // The last batch of an epoch is left out if it is not full.
  // If above 0, a batch is cut into this many pieces, and each replica takes
  // whole pieces (shard_tree.h).
  int virtual_shards = 0;
};

// One thread at a time.
class DataPlan {
 public:
  // Throws Error(invalid_argument) naming the option if samples or shards are negative, the batch
  // is below 1, or drop_last is set and the batch is larger than samples; and as SampleOrder does.
  explicit DataPlan(DataPlanOptions options);

  int64_t batches_per_epoch() const;
  // The sample indices of the global batch that starts at `position`, in order. There are fewer
  // than `batch` at the end of an epoch, and none exactly when the epoch is over at `position`.
  // Throws Error(invalid_argument) for a position outside the epoch.
  std::vector<int64_t> global_batch(DataPosition position) const;
  // The position of the next batch: further in the epoch, or at the start of the next one.
  DataPosition next(DataPosition position) const;
  // [first, last) of part `rank`, if `size` things are cut into `world_size` contiguous parts. The
  // parts differ in size by at most one.
  static std::pair<int64_t, int64_t> share(int64_t size, int rank, int world_size);

  const DataPlanOptions& options() const { return options_; }
  const SampleOrder& order() const { return order_; }
  // [first, last) of the share of replica `rank` in a global batch of `size`, under these options.
  std::pair<int64_t, int64_t> share_of(int64_t size, int rank, int world_size) const;
  std::string describe(int world_size) const;
  Json to_json(int world_size) const;

 private:
  int64_t size_at(DataPosition position) const;
  DataPlanOptions options_;
  SampleOrder order_;
};

// Checks how often each sample of an epoch was used. Throws Error(internal) naming the first
// sample that was not used exactly once; with `may_leave_out` a sample may also be unused.
void check_uses(const std::vector<int>& uses, bool may_leave_out);

// Walks one epoch for `world_size` replicas. Throws Error(internal) unless each sample is used
// exactly once (with drop_last, at most once). Of an epoch with more than kLargestOrderTable
// samples it checks the shares of a batch.
void check(const DataPlan& plan, int world_size);

}  // namespace trireme::plan
