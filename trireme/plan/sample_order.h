// The sample at each place of an epoch: a pure function of (seed, epoch, place). A table of the
// last epoch or window is kept for speed, never for the result.
#pragma once
#include <trireme/plan/order_options.h>
#include <cstdint>
#include <span>
#include <vector>

namespace trireme::plan {

// An order of OrderKind::full with more samples has no table, but that of KeyedOrder.
inline constexpr int64_t kLargestOrderTable = 1 << 24;

// One thread at a time.
class SampleOrder {
 public:
  // `samples` is the number of places of an epoch. Throws Error(invalid_argument) naming the
  // option: a window below 1, blocks or a mixture of another number of samples, or an order that
  // is not known.
  SampleOrder(int64_t samples, uint64_t seed, OrderOptions options);

  int64_t at(int64_t epoch, int64_t place) const;
  // The samples at the places from `first` on, as many as `out` has. Throws
  // Error(invalid_argument) for a place outside the epoch.
  void fill(int64_t epoch, int64_t first, std::span<int64_t> out) const;

  int64_t samples() const { return samples_; }
  uint64_t seed() const { return seed_; }
  // The samples have numbers from 0 to this one. Only a mixture has more numbers than places.
  int64_t numbers() const;
  const OrderOptions& options() const { return options_; }

 private:
  // The blocks of an epoch in their order.
  struct BlockTable {
    int64_t epoch = -1;
    std::vector<int64_t> ends;    // [block in this order]: the place after its last sample.
    std::vector<int64_t> shifts;  // Added to a place within it, gives the sample.
  };
  void fill_base(int64_t epoch, int64_t first, std::span<int64_t> out) const;
  void fill_from_table(int64_t epoch, int64_t first, std::span<int64_t> out) const;
  void fill_from_blocks(int64_t epoch, int64_t first, std::span<int64_t> out) const;
  void fill_from_mixture(int64_t epoch, int64_t first, std::span<int64_t> out) const;
  void fill_by_length(int64_t epoch, int64_t first, std::span<int64_t> out) const;
  const BlockTable& blocks_of(int64_t epoch) const;

  int64_t samples_;
  uint64_t seed_;
  OrderOptions options_;
  std::vector<SampleOrder> sources_;  // Of the mixture.
  mutable int64_t table_epoch_ = -1;
  mutable std::vector<int64_t> table_;
  mutable BlockTable block_table_;
  mutable int64_t window_epoch_ = -1, window_ = -1;
  mutable std::vector<int64_t> of_window_;  // The samples of a window by length.
};

// A permutation of 0..n-1: Fisher-Yates driven by mix64. It is the same on every platform, and
// easy to repeat elsewhere:
//   order = [0, 1, ..., n-1]
//   for i = n-1, n-2, ..., 1:
//     j = (mix64(seed, i) * (i + 1)) >> 64     (the product has 128 bits)
//     swap order[i] and order[j]
// Here mix64(x) is SplitMix64, and mix64(a, b) = mix64(mix64(a) ^ b) (base/hash.h). Epoch e of
// OrderKind::full has the order shuffled(samples, mix64(seed, e)), unless the samples are too
// many.
std::vector<int64_t> shuffled(int64_t n, uint64_t seed);

// Throws Error(internal) unless each block of epoch 0 is in the order once, and the blocks cover
// it. Other orders have nothing to check that a walk over an epoch does not (data_plan.h).
void check(const SampleOrder& order);

}  // namespace trireme::plan
