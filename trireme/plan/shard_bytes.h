// The memory that parameters, gradients and optimizer state take on each rank of sharded data
// parallel training (ZeRO, arXiv 1910.02054, section 5 and figure 1). Pure.
#pragma once
#include <trireme/base/json.h>
#include <cstdint>
#include <string>

namespace trireme::plan {

// Bytes for each element. The defaults are the paper's: mixed precision with Adam, K = 12.
struct StateBytes {
  int64_t parameter = 2;  // float16, or bfloat16.
  int64_t gradient = 2;
  int64_t optimizer = 8;  // The optimizer's tensors: two of float32 for Adam, one for momentum.
  int64_t master = 4;     // The float32 copy of a parameter; 0 where parameters are float32.
};

// The bytes on the rank that has the most.
struct ShardedBytes {
  int64_t parameters = 0;
  int64_t gradients = 0;
  int64_t optimizer = 0;  // With master weights.
  int64_t total() const { return parameters + gradients + optimizer; }
  bool operator==(const ShardedBytes&) const = default;
  std::string describe() const;  // "31.4 GB: parameters 15.0 GB, ..."
  Json to_json() const;
};

// Level 0 shards nothing. Level 1 shards optimizer state and master weights, level 2 gradients
// too, level 3 parameters too. A rank's shard is the elements divided by the ranks, rounded up.
// Not in it are the buffers in which level 2 and 3 reduce gradients and gather parameters.
// Throws Error(invalid_argument) naming a level outside 0 to 3, less than one rank, a negative
// number, and numbers too large to multiply.
ShardedBytes sharded_bytes(int level, int ranks, int64_t parameters, const StateBytes& bytes = {});

}  // namespace trireme::plan
