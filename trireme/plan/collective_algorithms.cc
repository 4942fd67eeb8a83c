#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/plan/collective_plan.h>
#include <numeric>

namespace trireme::plan {
namespace {

using Round = std::vector<RankRound>;

// Writes both views of a transfer: the receiver's, and a send of every other source.
void add_transfer(Round& round, int receiver, int chunk, std::vector<int> sources) {
  for (const int source : sources) {
    if (source != receiver) round[static_cast<size_t>(source)].sends.emplace_back(chunk, receiver);
  }
  round[static_cast<size_t>(receiver)].receives.push_back({chunk, std::move(sources)});
}

// Rank order, so that every rank that sums all ranks gets the same bits.
std::vector<int> all_ranks(int n) {
  std::vector<int> ranks(static_cast<size_t>(n));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Chunk `chunk` of all ranks is summed on each of `receivers`, in one round.
void add_sum(Round& round, const std::vector<int>& receivers, int chunk) {
  for (const int receiver : receivers) add_transfer(round, receiver, chunk, all_ranks(static_cast<int>(round.size())));
}

// Everybody reads `chunk` of its owner.
void add_copies(Round& round, int owner, int chunk) {
  for (int receiver = 0; receiver < static_cast<int>(round.size()); ++receiver) {
    if (receiver != owner) add_transfer(round, receiver, chunk, {owner});
  }
}

std::vector<Round> direct_reduce_scatter(int n) {
  Round round(static_cast<size_t>(n));
  for (int chunk = 0; chunk < n; ++chunk) add_sum(round, {chunk}, chunk);
  return {round};
}

std::vector<Round> direct_all_gather(int n) {
  Round round(static_cast<size_t>(n));
  for (int chunk = 0; chunk < n; ++chunk) add_copies(round, chunk, chunk);
  return {round};
}

// Chunk c starts on rank c+1 and takes one step to the right in a round; each rank adds its own part, rank c the last.
std::vector<Round> ring_reduce_scatter(int n) {
  std::vector<Round> rounds;
  for (int step = 0; step < n - 1; ++step) {
    Round& round = rounds.emplace_back(static_cast<size_t>(n));
    for (int chunk = 0; chunk < n; ++chunk) {
      const int left = (chunk + 1 + step) % n;
      const int receiver = (left + 1) % n;
      add_transfer(round, receiver, chunk, {left, receiver});
    }
  }
  return rounds;
}

// Chunk c starts on rank c and takes one step to the right in a round.
std::vector<Round> ring_all_gather(int n) {
  std::vector<Round> rounds;
  for (int step = 0; step < n - 1; ++step) {
    Round& round = rounds.emplace_back(static_cast<size_t>(n));
    for (int chunk = 0; chunk < n; ++chunk) {
      const int left = (chunk + step) % n;
      add_transfer(round, (left + 1) % n, chunk, {left});
    }
  }
  return rounds;
}

// A chain from the root: while rank root+2 takes chunk 0, rank root+1 takes chunk 1 already.
std::vector<Round> chain_broadcast(int n, int chunks, int root) {
  std::vector<Round> rounds(static_cast<size_t>(chunks + n - 2), Round(static_cast<size_t>(n)));
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (int hop = 0; hop < n - 1; ++hop) {
      const int left = (root + hop) % n;
      add_transfer(rounds[static_cast<size_t>(chunk + hop)], (left + 1) % n, chunk, {left});
    }
  }
  return rounds;
}

std::vector<Round> joined(std::vector<Round> first, const std::vector<Round>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

}  // namespace

CollectivePlan plan_collective(Collective collective, Algorithm algorithm, int world_size, int root) {
  const int n = world_size;
  if (n < 1) throw Error(ErrorCode::invalid_argument, "plan", fmt::format("world size is {}, and must be at least 1", n));
  if (root < 0 || root >= n)
    throw Error(ErrorCode::invalid_argument, "plan", fmt::format("root {} is outside a world of {} ranks", root, n));
  if (collective == Collective::broadcast && algorithm == Algorithm::direct) {
    throw Error(ErrorCode::unsupported, "plan", "a broadcast has no algorithm 'direct'", "naive or ring");
  }

  CollectivePlan plan{.collective = collective, .algorithm = algorithm, .world_size = n, .chunks = n, .root = root};
  const bool ring = algorithm == Algorithm::ring;
  const bool whole = algorithm == Algorithm::naive && (collective == Collective::all_reduce || collective == Collective::broadcast);
  if (whole) plan.chunks = 1;
  if (n == 1) return plan;
  switch (collective) {
    case Collective::all_reduce:
      if (whole) {
        add_sum(plan.rounds.emplace_back(static_cast<size_t>(n)), all_ranks(n), 0);
      } else {
        plan.rounds = ring ? joined(ring_reduce_scatter(n), ring_all_gather(n)) : joined(direct_reduce_scatter(n), direct_all_gather(n));
      }
      break;
    case Collective::reduce_scatter: plan.rounds = ring ? ring_reduce_scatter(n) : direct_reduce_scatter(n); break;
    case Collective::all_gather: plan.rounds = ring ? ring_all_gather(n) : direct_all_gather(n); break;
    case Collective::broadcast:
      if (whole) {
        add_copies(plan.rounds.emplace_back(static_cast<size_t>(n)), root, 0);
      } else {
        plan.rounds = chain_broadcast(n, plan.chunks, root);
      }
      break;
  }
  return plan;
}

}  // namespace trireme::plan
