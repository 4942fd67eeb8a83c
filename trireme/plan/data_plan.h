// Decides which sample goes to which replica. Keyed by (epoch, samples consumed), never by step or
// rank count: the global batch at a position holds the same samples whatever the world size. Pure.
#pragma once
#include <trireme/base/json.h>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace trireme::plan {

struct DataPosition {
  int64_t epoch = 0;
  int64_t consumed = 0;  // Samples of this epoch that committed steps have used.
  bool operator==(const DataPosition&) const = default;
};

struct DataPlanOptions {
  int64_t samples = 0;  // Of the data set.
  int64_t batch = 1;    // Global: samples per optimizer step, over all replicas.
  uint64_t seed = 0;
  bool shuffle = true;     // Another order each epoch.
  bool drop_last = false;  // Leave out an epoch's last batch if it is not full.
  int virtual_shards = 0;  // Above 0: a batch is cut into so many pieces, and replicas take whole
                           // ones (shard_tree.h).
};

class DataPlan {
 public:
  // Throws Error(invalid_argument) naming the option: negative samples or shards, batch below 1, or
  // a batch larger than samples with drop_last.
  explicit DataPlan(DataPlanOptions options);

  int64_t batches_per_epoch() const;
  // The global batch that starts at `position`: its sample indices in order; fewer than `batch` at
  // the end of an epoch; empty exactly when the epoch is over there. Throws Error(invalid_argument)
  // for a position outside the epoch.
  std::vector<int64_t> global_batch(DataPosition position) const;
  // Where the next batch starts: further in the epoch, or at the start of the next one.
  DataPosition next(DataPosition position) const;
  // [first, last): part `rank` of `size` things cut into `world_size` contiguous parts, whose sizes
  // differ by one at most.
  static std::pair<int64_t, int64_t> share(int64_t size, int rank, int world_size);

  const DataPlanOptions& options() const { return options_; }
  // The part of a global batch of `size` that replica `rank` of `world_size` takes under these
  // options.
  std::pair<int64_t, int64_t> share_of(int64_t size, int rank, int world_size) const;
  std::string describe(int world_size) const;
  Json to_json(int world_size) const;

 private:
  const std::vector<int64_t>& order_of(
      int64_t epoch) const;  // Cached for one epoch. Not for several threads at once.
  DataPlanOptions options_;
  mutable int64_t cached_epoch_ = -1;
  mutable std::vector<int64_t> cached_order_;
};

// A permutation of 0..n-1: Fisher-Yates driven by mix64, so it is the same on every platform and
// easy to repeat elsewhere:
//   order = [0, 1, ..., n-1]
//   for i = n-1, n-2, ..., 1:
//     j = (mix64(seed, i) * (i + 1)) >> 64     (the product has 128 bits)
//     swap order[i] and order[j]
// where mix64(x) is SplitMix64 and mix64(a, b) = mix64(mix64(a) ^ b) (base/hash.h). Epoch e of a
// DataPlan has the order shuffled(samples, mix64(seed, e)).
std::vector<int64_t> shuffled(int64_t n, uint64_t seed);

struct Split {
  std::vector<int64_t> train, test;
};
// Holds out `round(samples * test_fraction)` samples, drawn by `seed` alone. Both sides in
// ascending order.
Split plan_split(int64_t samples, double test_fraction, uint64_t seed);

// Given how often each sample of an epoch was used, throws Error(internal) naming the first that
// was not used exactly once (or not at all, where that is allowed).
void check_uses(const std::vector<int>& uses, bool may_leave_out);

// Walks one epoch for `world_size` replicas and throws Error(internal) unless each sample is used
// exactly once (with drop_last: at most once).
void check(const DataPlan& plan, int world_size);

}  // namespace trireme::plan
