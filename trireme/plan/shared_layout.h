// Decides the places of parameters, optimizer state and gradients in the memory that the ranks of
// a host share, and each rank's shard of it. The functions are pure.
#pragma once
#include <trireme/plan/shard_plan.h>
#include <cstddef>
#include <span>
#include <vector>

namespace trireme::plan {

inline constexpr size_t kCacheLine = 64;  // Bytes.

struct SharedLayout {
  // By parameter: its offset in the model's memory, a multiple of 64.
  std::vector<size_t> parameters;
  // By parameter: the offsets of its state tensors in the model's memory, multiples of 64.
  std::vector<std::vector<size_t>> states;
  size_t model_bytes = 0;
  // By trainable parameter: its offset in one rank's gradient memory, with 64 free
  // bytes before it.
  std::vector<size_t> gradients;
  size_t gradient_bytes = 0;  // The gradient memory of one rank.
};

// `state_tensors` has the number of state tensors of each parameter, at most 3. They have the
// sizes of `updated`, the parts of the parameters that are updated; all of them if it is empty.
SharedLayout lay_out(std::span<const TensorSpec> params, std::span<const int> state_tensors,
                     std::span<const TensorSpec> updated = {});

// Throws Error(internal) naming the parameter whose place overlaps another one or lies outside.
void check(const SharedLayout& layout, std::span<const TensorSpec> params);
Json to_json(const SharedLayout& layout);

// Divides the trainable elements among the ranks of each host. Parts are about equal in bytes and
// are cut at cache lines; the last rank of a host with n ranks may have up to n - 1 lines less.
// hosts: [rank]: the number of its host.
ShardPlan plan_shards(std::span<const TensorSpec> params, const SharedLayout& layout,
                      std::span<const int> hosts);

}  // namespace trireme::plan
