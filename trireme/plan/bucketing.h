// Batches of samples of similar length: they need less padding. The order stays a pure function of
// (seed, epoch, place), so a position in it means the same as in any other order. Pure.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace trireme::plan {

// A window of `window` batches takes the same samples as without this, and cuts them into batches
// by length. The batches of a window come in a random order.
struct LengthBatches {
  std::function<int64_t(int64_t)> length;  // Of a sample, by its number. Not called twice at once.
  // A text that differs if the lengths do. Ledger and checkpoints compare it.
  std::string content;
  // Samples of a batch. A run that continues keeps it, also where its global batch has changed.
  int64_t batch = 1;
  int64_t window = 100;  // In batches.

  bool operator==(const LengthBatches& other) const {
    return content == other.content && batch == other.batch && window == other.window;
  }
};

// Throws Error(invalid_argument) naming the option.
void check(const LengthBatches& options);

// The samples of a window in the order of the batches. If the last batch is not full, it stays the
// last, and its lengths are drawn by `seed` as those of the others are: the longest samples are
// not always the ones that a run with drop_last leaves out.
std::vector<int64_t> batched_by_length(std::vector<int64_t> samples, const LengthBatches& options,
                                       uint64_t seed);

}  // namespace trireme::plan
