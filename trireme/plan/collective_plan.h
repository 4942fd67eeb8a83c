// Decides who sends which chunk to whom in which round of a collective. Pure.
//
// A tensor is cut into chunks. In a round every rank reads what the others held at the round's start (as
// in bulk-synchronous parallel), so an executor may pull, push or stage, as long as it keeps that meaning.
#pragma once
#include <trireme/base/json.h>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::plan {

enum class Collective { all_reduce, reduce_scatter, all_gather, broadcast };
enum class Algorithm {
  naive,   // All-to-all: every rank reads every other rank's whole tensor. One round, (n-1) S bytes a rank.
  direct,  // Reduce-scatter then all-gather, each by direct exchange. Two rounds, 2 (n-1)/n S bytes a rank.
  ring,    // Reduce-scatter then all-gather along a ring (Patarasuk, Yuan 2009). 2 (n-1) rounds, 2 (n-1)/n S bytes a rank.
};
std::string_view to_string(Collective collective);
std::string_view to_string(Algorithm algorithm);
Algorithm algorithm_from_string(std::string_view name);  // Throws Error(invalid_argument) with the choices.

// `chunk` of the executing rank becomes the sum, in this order, of the same chunk on `sources` (the rank itself
// may be one of them); one source is a copy. The order is fixed by the plan, so that results are bit-identical in every run.
struct Transfer {
  int chunk = 0;
  std::vector<int> sources;
};
// What one rank does in one round. `sends` is the view of the same from the sender's side: (chunk, receiving rank).
struct RankRound {
  std::vector<Transfer> receives;
  std::vector<std::pair<int, int>> sends;
};

struct CollectivePlan {
  Collective collective = Collective::all_reduce;
  Algorithm algorithm = Algorithm::direct;
  int world_size = 1;
  int chunks = 1;
  int root = 0;                                // Of a broadcast.
  std::vector<std::vector<RankRound>> rounds;  // [round][rank]

  // First element of `chunk` in a tensor of `elements`, and one past its last; chunks differ by one element at most, and may be empty.
  std::pair<int64_t, int64_t> chunk_range(int chunk, int64_t elements) const;
  int64_t bytes_received(int rank, int64_t tensor_bytes) const;  // To within one element a chunk.
  std::string describe() const;  // A picture for people: who is linked to whom, and one line a round. Of a plan that check() accepts.
  Json to_json() const;
};

// Chunk c of reduce_scatter ends on rank c, and what the other chunks of that rank hold then means nothing; chunk c of all_gather
// starts on rank c. Any world size from 1 (which has no rounds). A rank that sums all ranks does so in the order 0..n-1.
// For reduce_scatter and for all_gather alone, naive is the direct exchange.
// A broadcast has one algorithm per name that makes sense (naive: all read the root; ring: chunks down a chain) and refuses the others
// with Error(unsupported). Throws Error(invalid_argument) for a world size below 1 or a root outside it.
CollectivePlan plan_collective(Collective collective, Algorithm algorithm, int world_size, int root = 0);

// Executes the plan on symbols and throws Error(internal), naming round, rank and chunk, unless: every receive has its send and the
// other way round (with rounds in step this excludes deadlock), and at the end every chunk that the collective promises
// holds each rank's contribution exactly once (all_reduce, reduce_scatter) or its owner's (all_gather, broadcast), with the
// additions in the same order on every rank that holds it (so that replicas stay bit-identical).
void check(const CollectivePlan& plan);

}  // namespace trireme::plan
