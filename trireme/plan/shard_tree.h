// Decides how the gradients of virtual shards are added up: by one binary tree over the shards,
// for any assignment of shards to ranks, so that the sum has the same bits for every number of
// ranks. The functions are pure.
//
//   shard   0   1   2   3   4     Neighbours are paired, level by level; a node without a
//            \ /     \ /    |     neighbour moves up as it is.
//           [0,2)   [2,4)   |
//               \   /       |     A rank has a contiguous run of shards. It adds up the nodes that
//               [0,4)       |     lie inside its run; the largest of them travel, and a rank that
//                   \      /      has all nodes that travelled adds up the rest of the tree.
//                    [0,5)
#pragma once
#include <trireme/base/json.h>
#include <string>
#include <vector>

namespace trireme::plan {

// A node of the tree, named by the shards below it.
struct ShardRange {
  int first = 0, last = 0;  // [first, last)
  bool operator==(const ShardRange&) const = default;
};
// An addition: the node that begins at shard `from` is added to the node that begins at shard
// `into`. The result ends before shard `last`.
struct ShardSum {
  int into = 0, from = 0, last = 0;
  bool operator==(const ShardSum&) const = default;
};

struct ShardTree {
  struct Rank {
    ShardRange own;  // Empty for some ranks if there are more ranks than shards.
    // The additions inside `own`, in the order of `last`: each can follow shard last - 1 at once.
    std::vector<ShardSum> sums;
    std::vector<ShardRange> travels;  // The nodes that remain, in order.
  };
  int shards = 1;
  std::vector<Rank> ranks;
  // The additions of the nodes that travel, in order. The node that begins at shard 0
  // becomes the sum.
  std::vector<ShardSum> combine;

  std::string describe() const;  // One line per rank, for `trireme plan`.
  Json to_json() const;
};

// Plans the tree; the runs of shards differ in length by at most one (DataPlan::share). Throws
// Error(invalid_argument) naming the number that is below 1.
ShardTree plan_shard_tree(int shards, int world_size);

// Throws Error(internal) unless every shard belongs to one rank, and each sum adds nodes that
// exist at that time. A rank may start a sum before all of its own shards are computed. The order
// of all additions must be the one that a single rank would follow.
void check(const ShardTree& tree);

}  // namespace trireme::plan
