// Decides which sample goes to which replica. The key is (epoch, samples consumed), never the step
// or the number of ranks: the global batch at a position holds the same samples for every world
// size. The functions are pure.
#pragma once
#include <trireme/base/json.h>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace trireme::plan {

struct DataPosition {
  int64_t epoch = 0;
  int64_t consumed = 0;  // The samples of this epoch that committed steps have used.
  bool operator==(const DataPosition&) const = default;
};

struct DataPlanOptions {
  int64_t samples = 0;  // The size of the data set.
  int64_t batch = 1;    // The global batch: samples per optimizer step, over all replicas.
  uint64_t seed = 0;
  bool shuffle = true;     // Each epoch has another order.
  bool drop_last = false;  // The last batch of an epoch is left out if it is not full.
  // If above 0, a batch is cut into this many pieces, and each replica takes
  // whole pieces (shard_tree.h).
  int virtual_shards = 0;
};

// A shuffled data set of more samples has the order of KeyedOrder (keyed_order.h), which needs no
// memory; a smaller one has that of shuffled().
inline constexpr int64_t kLargestOrderTable = 1 << 24;

class DataPlan {
 public:
  // Throws Error(invalid_argument) naming the option if samples or shards are negative, the batch
  // is below 1, or drop_last is set and the batch is larger than samples.
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
  // [first, last) of the share of replica `rank` in a global batch of `size`, under these options.
  std::pair<int64_t, int64_t> share_of(int64_t size, int rank, int world_size) const;
  std::string describe(int world_size) const;
  Json to_json(int world_size) const;

 private:
  bool has_table() const { return options_.shuffle && options_.samples <= kLargestOrderTable; }
  int64_t size_at(DataPosition position) const;
  // The order of an epoch, cached for one epoch. Several threads must not call it at once.
  const std::vector<int64_t>& table_of(int64_t epoch) const;
  DataPlanOptions options_;
  mutable int64_t cached_epoch_ = -1;
  mutable std::vector<int64_t> cached_order_;
};

// A permutation of 0..n-1: Fisher-Yates driven by mix64. It is the same on every platform, and
// easy to repeat elsewhere:
//   order = [0, 1, ..., n-1]
//   for i = n-1, n-2, ..., 1:
//     j = (mix64(seed, i) * (i + 1)) >> 64     (the product has 128 bits)
//     swap order[i] and order[j]
// Here mix64(x) is SplitMix64, and mix64(a, b) = mix64(mix64(a) ^ b) (base/hash.h). Epoch e of a
// DataPlan has the order shuffled(samples, mix64(seed, e)), unless the samples are too many.
std::vector<int64_t> shuffled(int64_t n, uint64_t seed);

struct Split {
  std::vector<int64_t> train, test;
};
// Holds out `round(samples * test_fraction)` samples, drawn by `seed` alone. Both lists are in
// ascending order.
Split plan_split(int64_t samples, double test_fraction, uint64_t seed);

// Checks how often each sample of an epoch was used. Throws Error(internal) naming the first
// sample that was not used exactly once; with `may_leave_out` a sample may also be unused.
void check_uses(const std::vector<int>& uses, bool may_leave_out);

// Walks one epoch for `world_size` replicas. Throws Error(internal) unless each sample is used
// exactly once (with drop_last, at most once). Of an epoch with more than kLargestOrderTable
// samples it checks the shares of a batch.
void check(const DataPlan& plan, int world_size);

}  // namespace trireme::plan
