// Decides which rank sends which chunk to which rank in each round of a collective. The functions
// are pure.
//
// A tensor is cut into chunks. In a round every rank reads the values that the others held at the
// start of the round (as in bulk-synchronous parallel). An executor may pull, push or stage the
// bytes, as long as it keeps that meaning.
#pragma once
#include <trireme/base/json.h>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::plan {

enum class Collective { all_reduce, reduce_scatter, all_gather, broadcast, all_to_all };

// The comments describe all_reduce; docs/collectives.md says what the names mean for the other
// collectives. n is the number of ranks, S the bytes of the tensor, and lg n the number of times
// that n can be halved before it is 1.
enum class Algorithm {
  // All-to-all: every rank reads the whole tensor of every other rank. One round; (n-1) S bytes
  // per rank.
  naive,
  // Reduce-scatter, then all-gather, each by direct exchange. Two rounds; 2 (n-1)/n S
  // bytes per rank.
  direct,
  // Reduce-scatter, then all-gather, along a ring (Patarasuk, Yuan 2009). 2 (n-1) rounds; 2
  // (n-1)/n S bytes per rank.
  ring,
  // Ranks exchange whole tensors with a partner at a distance that doubles in each round. lg n
  // rounds of S bytes per rank.
  recursive_doubling,
  // Reduce-scatter by recursive halving, all-gather by recursive doubling (Rabenseifner 2004). 2
  // lg n rounds; 2 (n-1)/n S bytes per rank.
  halving_doubling,
  // The sum goes up a binomial tree to rank 0, and copies come down it. 2 lg n rounds; rank 0
  // receives lg n S bytes.
  tree,
  // The ranks of each host sum to their leader, the leaders run a ring, and the result goes back
  // to the ranks. Between h hosts, the network card of each carries 2 (h-1)/h S bytes each way for
  // any number of ranks. On one host this is `direct`.
  hierarchical,
};
std::string_view to_string(Collective collective);
std::string_view to_string(Algorithm algorithm);
// Both throw Error(invalid_argument) with the choices for an unknown name.
Collective collective_from_string(std::string_view name);
Algorithm algorithm_from_string(std::string_view name);
std::span<const Collective> all_collectives();
std::span<const Algorithm> all_algorithms();
// The algorithms that plan_collective accepts for the collective, at any world size.
std::vector<Algorithm> algorithms_of(Collective collective);

// The same list without repetitions: if several algorithms make the same plan for `world_size`
// ranks of one host, only the first of them is in it.
std::vector<Algorithm> distinct_algorithms_of(Collective collective, int world_size);

// The transfer replaces `chunk` of the executing rank by the sum of the same chunk on `sources`,
// added in this order; the rank itself may be one of them. A single source makes it a copy. The
// plan fixes the order, so that the results are bit-identical in every run.
struct Transfer {
  int chunk = 0;
  std::vector<int> sources;
  bool operator==(const Transfer&) const = default;
};
// The actions of one rank in one round. `sends` repeats the transfers as the sender sees them:
// (chunk, receiving rank).
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
  int root = 0;            // The root of a broadcast.
  std::vector<int> hosts;  // [rank]: the number of its host. If empty, all ranks are on one host.
  std::vector<std::vector<RankRound>> rounds;  // [round][rank]

  // The first element of `chunk` in a tensor of `elements`, and one past its last. Chunks differ
  // by at most one element, and may be empty.
  std::pair<int64_t, int64_t> chunk_range(int chunk, int64_t elements) const;
  // The bytes that `rank` sends to others in all rounds, exactly. What others read of its memory
  // counts as sent, and a send to itself does not.
  int64_t bytes_sent(int rank, int64_t elements, int64_t element_bytes) const;
  // The bytes that `rank` receives from others in all rounds, and the bytes that the busiest
  // one-way link between two ranks carries. These figures and the next two are exact to within one
  // element per chunk.
  int64_t bytes_received(int rank, int64_t tensor_bytes) const;
  int64_t bytes_on_busiest_link(int64_t tensor_bytes) const;
  // The memory that a rank needs beside the tensor if the ranks share memory: it holds new values
  // of chunks that others still read in the same round.
  int64_t extra_bytes_in_shared_memory(int64_t tensor_bytes) const;
  // The memory that a rank needs beside the tensor if messages carry the chunks. It holds chunks
  // that arrive to be added, and chunks that arrive while the same chunk is being sent.
  int64_t extra_bytes_by_messages(int64_t tensor_bytes) const;

  // A picture for people: the links between the ranks, and one line per round. check() must accept
  // the plan.
  std::string describe() const;
  Json to_json() const;
};

// Whether another rank reads `chunk` of `rank` in the round; `actions` are those of `rank`.
bool is_read_by_others(const RankRound& actions, int rank, int chunk);

// Makes the plan for any world size from 1; a world of one rank has no rounds. Chunk c of
// reduce_scatter ends on rank c, and the other chunks of that rank then have no meaning. Chunk c
// of all_gather starts on rank c. The tensor of all_to_all is the inputs of all ranks, one after
// another: chunk i * n + j goes from rank i to rank j. `hosts` gives the host of each rank, in any
// order and number; if it is empty, all ranks are on one host. Only the hierarchical algorithm
// looks at it. A rank that sums all ranks in one round does so in the order 0..n-1.
//
// If n is not a power of two, recursive_doubling and halving_doubling work with the largest 2^k
// below n. The n - 2^k extra ranks are 1, 3, 5, ...: each adds its tensor to its left neighbour in
// a round before, and takes the result from it in a round after.
//
// Throws Error(unsupported) naming the choices if the collective cannot be done by the algorithm.
// Throws Error(invalid_argument) for a world size below 1, a root outside it, or hosts that are
// not one number from 0 for each rank.
CollectivePlan plan_collective(Collective collective, Algorithm algorithm, int world_size,
                               int root = 0, const std::vector<int>& hosts = {});

// Executes the plan on symbols and throws Error(internal) naming round, rank and chunk if one of
// these rules is broken:
// - Every receive has its send, and every send its receive. Since rounds run in step, no deadlock
//   is possible then.
// - At the end every chunk that the collective promises holds the contribution of each rank
//   exactly once (all_reduce, reduce_scatter), or that of its owner (all_gather, broadcast,
//   all_to_all).
// - All ranks that hold a chunk have added it up by the same tree, so that replicas stay
//   bit-identical. (a + b and b + a have the same bits.)
void check(const CollectivePlan& plan);

}  // namespace trireme::plan
