#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/plan/collective_plan.h>
#include <trireme/plan/collective_symbols.h>
#include <algorithm>
#include <array>
#include <iterator>

namespace trireme::plan {
namespace {

[[noreturn]] void reject(const CollectivePlan& plan, const std::string& what) {
  throw Error(ErrorCode::internal, "plan",
              fmt::format("{} plan, {}", to_string(plan.collective), what));
}

void require_rank(const CollectivePlan& plan, int rank, const std::string& where) {
  if (rank < 0 || rank >= plan.world_size)
    reject(plan, fmt::format("{}: names rank {} of {}", where, rank, plan.world_size));
}

void check_shape(const CollectivePlan& plan) {
  if (plan.world_size < 1 || plan.chunks < 1)
    reject(plan, fmt::format("which has {} ranks and {} chunks", plan.world_size, plan.chunks));
  require_rank(plan, plan.root, "root");
  if (!plan.hosts.empty() && plan.hosts.size() != static_cast<size_t>(plan.world_size))
    reject(plan,
           fmt::format("which has hosts for {} of {} ranks", plan.hosts.size(), plan.world_size));
  const bool chunk_per_rank =
      plan.collective == Collective::reduce_scatter || plan.collective == Collective::all_gather;
  if (chunk_per_rank && plan.chunks != plan.world_size) {
    reject(plan, fmt::format("which has {} chunks, and needs one for each of {} ranks",
                             plan.chunks, plan.world_size));
  }
  const bool chunk_per_pair = plan.collective == Collective::all_to_all;
  if (chunk_per_pair && plan.chunks != plan.world_size * plan.world_size) {
    reject(plan, fmt::format("which has {} chunks, and needs one for each pair of {} ranks",
                             plan.chunks, plan.world_size));
  }
  for (size_t round = 0; round < plan.rounds.size(); ++round) {
    if (plan.rounds[round].size() != static_cast<size_t>(plan.world_size)) {
      reject(plan, fmt::format("round {}: has actions for {} of {} ranks", round,
                               plan.rounds[round].size(), plan.world_size));
    }
  }
}

// Checks that a rank's actions name chunks and ranks that exist, and that no chunk
// is written twice.
void check_actions(const CollectivePlan& plan, const RankRound& actions, int round, int rank) {
  std::vector<bool> written(static_cast<size_t>(plan.chunks), false);
  const auto place = [&](int chunk) {
    return fmt::format("round {}, rank {}, chunk {}", round, rank, chunk);
  };
  const auto require_chunk = [&](int chunk) {
    if (chunk < 0 || chunk >= plan.chunks)
      reject(plan, fmt::format("{}: there are {} chunks", place(chunk), plan.chunks));
  };
  for (const Transfer& transfer : actions.receives) {
    require_chunk(transfer.chunk);
    if (written[static_cast<size_t>(transfer.chunk)])
      reject(plan, place(transfer.chunk) + ": written twice in one round");
    written[static_cast<size_t>(transfer.chunk)] = true;
    if (transfer.sources.empty()) reject(plan, place(transfer.chunk) + ": received from no rank");
    for (const int source : transfer.sources) require_rank(plan, source, place(transfer.chunk));
  }
  for (const auto& [chunk, receiver] : actions.sends) {
    require_chunk(chunk);
    require_rank(plan, receiver, place(chunk));
    if (receiver == rank) reject(plan, place(chunk) + ": sent to itself");
  }
}

// Checks that the receivers and the senders of a round describe the same messages.
void check_messages(const CollectivePlan& plan, int round) {
  using Message = std::array<int, 3>;  // Sender, receiver, chunk.
  std::vector<Message> sent, received;
  for (int rank = 0; rank < plan.world_size; ++rank) {
    const RankRound& actions = plan.rounds[static_cast<size_t>(round)][static_cast<size_t>(rank)];
    for (const auto& [chunk, receiver] : actions.sends) sent.push_back({rank, receiver, chunk});
    for (const Transfer& transfer : actions.receives) {
      for (const int source : transfer.sources) {
        if (source != rank) received.push_back({source, rank, transfer.chunk});
      }
    }
  }
  std::sort(sent.begin(), sent.end());
  std::sort(received.begin(), received.end());
  std::vector<Message> lone;
  std::set_difference(received.begin(), received.end(), sent.begin(), sent.end(),
                      std::back_inserter(lone));
  if (!lone.empty()) {
    const auto [sender, receiver, chunk] = lone.front();
    reject(plan, fmt::format(
                     "round {}, rank {}, chunk {}: received from rank {}, which does not send it",
                     round, receiver, chunk, sender));
  }
  std::set_difference(sent.begin(), sent.end(), received.begin(), received.end(),
                      std::back_inserter(lone));
  if (!lone.empty()) {
    const auto [sender, receiver, chunk] = lone.front();
    reject(plan,
           fmt::format("round {}, rank {}, chunk {}: sent to rank {}, which does not receive it",
                       round, sender, chunk, receiver));
  }
}

// Whether `rank` must hold `chunk` at the end.
bool is_promised(const CollectivePlan& plan, int rank, int chunk) {
  switch (plan.collective) {
    case Collective::reduce_scatter: return chunk == rank;
    case Collective::all_to_all: return chunk % plan.world_size == rank;
    default: return true;
  }
}

// Checks that every rank ends with the chunks it was promised, with the same bits as the others.
void check_result(const CollectivePlan& plan, const Holdings& holdings) {
  for (int rank = 0; rank < plan.world_size; ++rank) {
    for (int chunk = 0; chunk < plan.chunks; ++chunk) {
      if (!is_promised(plan, rank, chunk)) continue;
      const Held& held = holdings.at(rank, chunk);
      if (!holdings.done(rank, chunk)) {
        const auto missing = std::find(held.contributors.begin(), held.contributors.end(), false) -
                             held.contributors.begin();
        reject(plan, fmt::format("after round {}, rank {}, chunk {}: {}",
                                 static_cast<int>(plan.rounds.size()) - 1, rank, chunk,
                                 held.count == 0
                                     ? "never arrived"
                                     : fmt::format("lacks the contribution of rank {}", missing)));
      }
      if (is_promised(plan, 0, chunk) && held.tree != holdings.at(0, chunk).tree) {
        reject(plan,
               fmt::format(
                   "after round {}, rank {}, chunk {}: added up by another tree than on rank 0",
                   static_cast<int>(plan.rounds.size()) - 1, rank, chunk));
      }
    }
  }
}

}  // namespace

void check(const CollectivePlan& plan) {
  check_shape(plan);
  Holdings holdings(plan);
  for (int round = 0; round < static_cast<int>(plan.rounds.size()); ++round) {
    for (int rank = 0; rank < plan.world_size; ++rank) {
      check_actions(plan, plan.rounds[static_cast<size_t>(round)][static_cast<size_t>(rank)],
                    round, rank);
    }
    check_messages(plan, round);
    holdings.apply(round);
  }
  check_result(plan, holdings);
}

}  // namespace trireme::plan
