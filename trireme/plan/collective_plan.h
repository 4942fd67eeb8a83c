// Decides who sends which chunk to whom in which round of a collective. Pure.
//
// A tensor is cut into chunks. In a round every rank reads what the others held at the round's
// start (as in bulk-synchronous parallel), so an executor may pull, push or stage, as long as it
// keeps that meaning.
#pragma once
#include <trireme/base/json.h>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::plan {

enum class Collective { all_reduce, reduce_scatter, all_gather, broadcast };

// n ranks, S bytes, lg n: the rounds that halve n down to 1. What the others than all_reduce make
// of a name is in docs/collectives.md.
enum class Algorithm {
  naive,   // All-to-all: every rank reads every other rank's whole tensor. One round, (n-1) S bytes
           // a rank.
  direct,  // Reduce-scatter then all-gather, each by direct exchange. Two rounds, 2 (n-1)/n S bytes
           // a rank.
  ring,    // Reduce-scatter then all-gather along a ring (Patarasuk, Yuan 2009). 2 (n-1) rounds, 2
           // (n-1)/n S bytes a rank.
  recursive_doubling,  // Whole tensors with a partner twice as far in each round. lg n rounds, S
                       // bytes each.
  halving_doubling,    // Reduce-scatter by recursive halving, all-gather by recursive doubling
                     // (Rabenseifner 2004). 2 lg n rounds, 2 (n-1)/n S bytes a rank.
  tree,          // Summed up a binomial tree to rank 0, copied down it again. 2 lg n rounds; rank 0
                 // receives lg n S.
  hierarchical,  // Inside each host to its leader, along a ring of the leaders, and back. A host's
                 // network card carries 2 (h-1)/h S each way, h: hosts, however many ranks they
                 // have. On one host: direct.
};
std::string_view to_string(Collective collective);
std::string_view to_string(Algorithm algorithm);
Collective collective_from_string(
    std::string_view name);  // Throws Error(invalid_argument) with the choices; so does the next.
Algorithm algorithm_from_string(std::string_view name);
std::span<const Collective> all_collectives();
std::span<const Algorithm> all_algorithms();
std::vector<Algorithm> algorithms_of(
    Collective collective);  // Those that plan_collective makes for it, for any world size.

// The same, but of those that make the same plan for so many ranks of one host, the first.
std::vector<Algorithm> distinct_algorithms_of(Collective collective, int world_size);

// `chunk` of the executing rank becomes the sum, in this order, of the same chunk on `sources` (the
// rank itself may be one of them); one source is a copy. The order is fixed by the plan, so that
// results are bit-identical in every run.
struct Transfer {
  int chunk = 0;
  std::vector<int> sources;
  bool operator==(const Transfer&) const = default;
};
// What one rank does in one round. `sends` is the view of the same from the sender's side: (chunk,
// receiving rank).
struct RankRound {
  std::vector<Transfer> receives;
  std::vector<std::pair<int, int>> sends;
  bool operator==(const RankRound&) const = default;
};

struct CollectivePlan {
  Collective collective = Collective::all_reduce;
  Algorithm algorithm = Algorithm::direct;
  int world_size = 1;
  int chunks = 1;
  int root = 0;            // Of a broadcast.
  std::vector<int> hosts;  // [rank]: the number of its host. Empty: all ranks are on one.
  std::vector<std::vector<RankRound>> rounds;  // [round][rank]

  // First element of `chunk` in a tensor of `elements`, and one past its last; chunks differ by one
  // element at most, and may be empty.
  std::pair<int64_t, int64_t> chunk_range(int chunk, int64_t elements) const;
  // Bytes that `rank` receives from others in all rounds; that the busiest one-way link between two
  // ranks carries; and that a rank needs beside the tensor. To within one element a chunk.
  int64_t bytes_received(int rank, int64_t tensor_bytes) const;
  int64_t bytes_on_busiest_link(int64_t tensor_bytes) const;
  // In shared memory: new values of chunks that others still read in the same round.
  int64_t extra_bytes_in_shared_memory(int64_t tensor_bytes) const;
  // By messages: what arrives to be added, or arrives for a chunk that is being sent in the same
  // round.
  int64_t extra_bytes_by_messages(int64_t tensor_bytes) const;

  std::string describe() const;  // A picture for people: who is linked to whom, and one line a
                                 // round. Of a plan that check() accepts.
  Json to_json() const;
};

// Whether another rank reads `chunk` of `rank`, whose actions these are, in the round.
bool is_read_by_others(const RankRound& actions, int rank, int chunk);

// Chunk c of reduce_scatter ends on rank c, and what the other chunks of that rank hold then means
// nothing; chunk c of all_gather starts on rank c. Any world size from 1 (which has no rounds).
// `hosts` says how the ranks lie on hosts, in any order and number (empty: all on one);
// hierarchical alone looks at it. A rank that sums all ranks in one round does so in the order
// 0..n-1.
//
// Where n is no power of two, recursive_doubling and halving_doubling let the 2^k <= n ranks 0, 2,
// 4, ... and the last ones take part: each of the n - 2^k extra ranks 1, 3, 5, ... folds its tensor
// into its left neighbour in a round before, and takes the result from it in a round after.
//
// Throws Error(unsupported) naming the choices if the algorithm makes no sense for the collective;
// Error(invalid_argument) for a world size below 1, a root outside it, or hosts that are not one
// number from 0 a rank.
CollectivePlan plan_collective(Collective collective, Algorithm algorithm, int world_size,
                               int root = 0, const std::vector<int>& hosts = {});

// Executes the plan on symbols and throws Error(internal), naming round, rank and chunk, unless:
// every receive has its send and the other way round (with rounds in step this excludes deadlock),
// and at the end every chunk that the collective promises holds each rank's contribution exactly
// once (all_reduce, reduce_scatter) or its owner's (all_gather, broadcast), added up by the same
// tree on every rank that holds it (so that replicas stay bit-identical; a + b and b + a are the
// same bits).
void check(const CollectivePlan& plan);

}  // namespace trireme::plan
