// The facts that the ranks of a host tell each other in a step besides gradients, in shared
// memory.
#pragma once
#include <trireme/net/shared_memory.h>
#include <trireme/parallel/fused/kernels.h>
#include <cstdint>
#include <memory>

namespace trireme::shared {

// There are two rows for each rank. Successive steps use different rows, so that a fast rank does
// not overwrite what a slow one reads.
class StepTable {
 public:
  static size_t bytes_for(int ranks, int parameters, int64_t facts);
  StepTable(std::byte* memory, int ranks, int parameters, int64_t facts)
      : memory_(memory), ranks_(ranks), parameters_(parameters), facts_(facts) {}

  static constexpr int64_t kNoGradient = -1, kNone = -1;
  static int64_t empty_at(int64_t offset) { return -2 - offset; }
  struct Head {
    // 1 if the optimizer's state does not lie in the shared memory (any more).
    int64_t state_is_new;
    int64_t rewritten;  // A parameter that this rank found rewritten in its update, or kNone.
    double squares;     // The sum of squares of this rank's shard of the reduced gradient.
    // The buckets that were complete before the step, for other hosts (between_hosts.h).
    int64_t buckets_in_backward;
    // The next two are those of host_means.h: the weight of this rank's gradients, and the first
    // gradient that it found not to be finite: its parameter, or kNone, and the rank that has it.
    double weight;
    int64_t nonfinite, nonfinite_rank;
  };
  void next_step() { set_ = 1 - set_; }
  Head& head(int rank) const { return *reinterpret_cast<Head*>(row(rank)); }
  double* facts(int rank) const { return reinterpret_cast<double*>(row(rank) + sizeof(Head)); }
  // The offset of each parameter's gradient in the shared memory, or kNoGradient, or
  // empty_at(offset) of a place in which there is none yet (host_means.h).
  int64_t* gradients(int rank) const { return reinterpret_cast<int64_t*>(facts(rank) + facts_); }
  // The squares of this rank's part of each parameter, for layerwise optimizers.
  fused::Squares* squares(int rank) const {
    return reinterpret_cast<fused::Squares*>(gradients(rank) + parameters_);
  }

 private:
  static size_t row_bytes(int parameters, int64_t facts);
  std::byte* row(int rank) const {
    return memory_ + static_cast<size_t>(set_ * ranks_ + rank) * row_bytes(parameters_, facts_);
  }

  std::byte* memory_;
  int ranks_, parameters_;
  int64_t facts_;
  int set_ = 0;
};

}  // namespace trireme::shared
