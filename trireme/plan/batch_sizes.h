// The sizes of batches: global = micro x accumulate x replicas. Pure.
#pragma once
#include <trireme/base/json.h>
#include <cstdint>
#include <string>

namespace trireme::plan {

// Samples. 0 where a size is asked for.
struct BatchSizes {
  int64_t global = 0;      // In a step, over all replicas.
  int64_t micro = 0;       // That go through a replica's model at once, at most.
  int64_t accumulate = 0;  // The micro-batches of a replica in a step.
  int64_t replicas = 1;

  // Whether each micro-batch of each replica has as many samples. Otherwise the last replicas have
  // a sample less, and the last micro-batch of a replica is smaller.
  bool even() const;
  bool operator==(const BatchSizes&) const = default;
  std::string describe() const;  // "64 samples: 8 x 4 micro-batches x 2 replicas"
  Json to_json() const;
};

// Fills in the sizes that are 0 from those that are given: any two of global, micro and
// accumulate. If only global or only micro is given, `accumulate` is 1. A size that does not come
// out whole is rounded up. All three fit if the longest share takes exactly `accumulate`
// micro-batches. Throws Error(invalid_argument) naming the sizes if too few are given, one is
// negative or too large, there is not a sample for each micro-batch, or they contradict each
// other.
BatchSizes batch_sizes(BatchSizes given);

}  // namespace trireme::plan
