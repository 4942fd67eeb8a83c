// The bytes that a CollectivePlan moves, and the memory that it needs beside the tensor.
#include <trireme/plan/collective_plan.h>
#include <algorithm>
#include <map>

namespace trireme::plan {
namespace {

int64_t chunk_bytes(const CollectivePlan& plan, int chunk, int64_t tensor_bytes) {
  const auto [first, last] = plan.chunk_range(chunk, tensor_bytes);
  return last - first;
}

// The number of times that `transfer` receives its chunk from another rank.
int64_t parts_of_others(const Transfer& transfer, int rank) {
  return static_cast<int64_t>(transfer.sources.size()) -
         std::count(transfer.sources.begin(), transfer.sources.end(), rank);
}

// The largest sum of `needs(actions, rank, transfer)` over the receives of one rank in one round.
template <typename Needs>
int64_t most_in_a_round(const CollectivePlan& plan, Needs needs) {
  int64_t most = 0;
  for (const auto& round : plan.rounds) {
    for (int rank = 0; rank < plan.world_size; ++rank) {
      const RankRound& actions = round[static_cast<size_t>(rank)];
      int64_t sum = 0;
      for (const Transfer& transfer : actions.receives) sum += needs(actions, rank, transfer);
      most = std::max(most, sum);
    }
  }
  return most;
}

}  // namespace

bool is_read_by_others(const RankRound& actions, int rank, int chunk) {
  return std::any_of(actions.sends.begin(), actions.sends.end(),
                     [&](const auto& send) { return send.first == chunk && send.second != rank; });
}

int64_t CollectivePlan::bytes_sent(int rank, int64_t elements, int64_t element_bytes) const {
  int64_t sent = 0;
  for (const auto& round : rounds) {
    for (const auto& [chunk, receiver] : round[static_cast<size_t>(rank)].sends) {
      if (receiver == rank) continue;
      const auto [first, last] = chunk_range(chunk, elements);
      sent += last - first;
    }
  }
  return sent * element_bytes;
}

int64_t CollectivePlan::bytes_received(int rank, int64_t tensor_bytes) const {
  int64_t bytes = 0;
  for (const auto& round : rounds) {
    for (const Transfer& transfer : round[static_cast<size_t>(rank)].receives)
      bytes += chunk_bytes(*this, transfer.chunk, tensor_bytes) * parts_of_others(transfer, rank);
  }
  return bytes;
}

int64_t CollectivePlan::bytes_on_busiest_link(int64_t tensor_bytes) const {
  std::map<std::pair<int, int>, int64_t> links;
  int64_t most = 0;
  for (const auto& round : rounds) {
    for (int rank = 0; rank < world_size; ++rank) {
      for (const auto& [chunk, receiver] : round[static_cast<size_t>(rank)].sends)
        most = std::max(most, links[{rank, receiver}] += chunk_bytes(*this, chunk, tensor_bytes));
    }
  }
  return most;
}

int64_t CollectivePlan::extra_bytes_in_shared_memory(int64_t tensor_bytes) const {
  return most_in_a_round(*this, [&](const RankRound& actions, int rank, const Transfer& transfer) {
    return is_read_by_others(actions, rank, transfer.chunk)
               ? chunk_bytes(*this, transfer.chunk, tensor_bytes)
               : 0;
  });
}

int64_t CollectivePlan::extra_bytes_by_messages(int64_t tensor_bytes) const {
  return most_in_a_round(*this, [&](const RankRound& actions, int rank, const Transfer& transfer) {
    const bool lands_in_place =
        transfer.sources.size() == 1 && !is_read_by_others(actions, rank, transfer.chunk);
    return lands_in_place ? 0
                          : chunk_bytes(*this, transfer.chunk, tensor_bytes) *
                                parts_of_others(transfer, rank);
  });
}

}  // namespace trireme::plan
