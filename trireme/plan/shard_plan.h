// Decides which rank updates which elements of the parameters. The functions are pure.
#pragma once
#include <trireme/base/json.h>
#include <trireme/plan/tensor_spec.h>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trireme::plan {

// A run of one parameter's elements.
struct Slice {
  int parameter = 0;
  int64_t from = 0, to = 0;
  bool operator==(const Slice&) const = default;
};

struct ShardPlan {
  // The ranks that have one copy of the parameters together, and divide its update among them.
  std::vector<std::vector<int>> teams;
  std::vector<std::vector<Slice>> ranks;  // [rank]: its slices, in ascending order.

  int64_t elements_of(int rank) const;
  // One line for each rank, with a bar over all elements; for `trireme plan`.
  std::string describe(std::span<const TensorSpec> params) const;
  Json to_json() const;
};

// Every rank has a copy of its own, and updates all trainable elements of it.
ShardPlan replicate(std::span<const TensorSpec> params, int ranks);

// Throws Error(internal) naming rank and parameter unless every rank is in one team, and each
// trainable element belongs to exactly one rank of each team.
void check(const ShardPlan& plan, std::span<const TensorSpec> params);

}  // namespace trireme::plan
