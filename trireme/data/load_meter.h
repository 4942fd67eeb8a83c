// Measures how a caller and the threads of a loader keep pace, in windows of some steps. No torch.
#pragma once
#include <trireme/data/tuner.h>
#include <cstdint>
#include <vector>

namespace trireme::data {

// The work of a loader's threads so far, in seconds. `computed` is the part in which they computed
// or waited for a processor.
struct LoadTotals {
  double load = 0, computed = 0;
  int64_t batches = 0;
};

// One thread.
class LoadMeter {
 public:
  // The first batches after a change belong to the time before it.
  void begin(const LoadTotals& totals, int batches_to_skip, int threads);
  // The caller has got a batch: `own` seconds after it got the last one it asked for it, and
  // waited for it for so long.
  void took(double own, double waited, const LoadTotals& totals);
  bool is_full() const;
  // The means of the window. A step in which the caller did other work, such as an evaluation,
  // does not count. free_bytes is the caller's to fill in.
  LoadWindow read(const LoadTotals& totals) const;

 private:
  struct Step {
    double own, waited;
  };
  std::vector<Step> steps_;
  LoadTotals at_begin_;
  double seconds_ = 0;
  int to_skip_ = 1, threads_ = 1;
  bool is_first_ = true;  // No window has begun by a change or after another one.
};

}  // namespace trireme::data
