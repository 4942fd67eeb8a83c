// Decides how the gradients of virtual shards are added up: by one binary tree over the shards,
// whoever computes them, so that the sum has the same bits for every number of ranks. Pure.
//
//   shard   0   1   2   3   4
//            \ /     \ /    |     Neighbours are paired, level by level; one that is left over
//            moves up as it is.
//           [0,2)   [2,4)   |     A rank has a contiguous run of shards and adds up the nodes that
//           lie in it whole; the largest of
//               \   /       |     them travel, and whoever has all that travelled adds up the rest
//               of the tree. [0,4)       |
//                   \      /
//                    [0,5)
#pragma once
#include <trireme/base/json.h>
#include <string>
#include <vector>

namespace trireme::plan {

// A node of the tree, by the shards below it.
struct ShardRange {
  int first = 0, last = 0;  // [first, last)
  bool operator==(const ShardRange&) const = default;
};
// The node that begins at shard `into` += the node that begins at shard `from`: what comes of it
// ends before shard `last`.
struct ShardSum {
  int into = 0, from = 0, last = 0;
  bool operator==(const ShardSum&) const = default;
};

struct ShardTree {
  struct Rank {
    ShardRange own;              // May be empty, where there are more ranks than shards.
    std::vector<ShardSum> sums;  // Of nodes that lie in `own`, in the order of `last`: each can
                                 // follow shard last - 1 at once.
    std::vector<ShardRange> travels;  // The nodes that are left, in order.
  };
  int shards = 1;
  std::vector<Rank> ranks;
  std::vector<ShardSum>
      combine;  // In order, of all that travels; the sum is the node that begins at shard 0.

  std::string describe() const;  // One line a rank, for `trireme plan`.
  Json to_json() const;
};

// Runs of shards differ by one in length at most (DataPlan::share). Throws Error(invalid_argument)
// naming the number that is below 1.
ShardTree plan_shard_tree(int shards, int world_size);

// Throws Error(internal) unless every shard belongs to one rank, each sum adds nodes that are
// there, a rank's own before it is all computed, and the order of all additions is the one that a
// single rank would follow.
void check(const ShardTree& tree);

}  // namespace trireme::plan
