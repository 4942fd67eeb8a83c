#include <trireme/plan/collective_symbols.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <algorithm>

namespace trireme::plan {
namespace {

bool reduces(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter;
}

// Whether `rank` contributes a value of its own to `chunk` at the start.
bool contributes(const CollectivePlan& plan, int rank, int chunk) {
  switch (plan.collective) {
    case Collective::all_reduce:
    case Collective::reduce_scatter: return true;
    case Collective::all_gather: return rank == chunk;
    case Collective::broadcast: return rank == plan.root;
    case Collective::all_to_all: return rank == chunk / plan.world_size;
  }
  return false;
}

// Digests of an addition and of a rounding.
uint64_t added(uint64_t a, uint64_t b) { return mix64(std::min(a, b), std::max(a, b)); }
uint64_t rounded(uint64_t sum) { return mix64(~sum); }

}  // namespace

Holdings::Holdings(const CollectivePlan& plan)
    : plan_(plan), contributions_(reduces(plan.collective) ? plan.world_size : 1) {
  const auto ranks = static_cast<size_t>(plan.world_size);
  held_.assign(ranks, std::vector<Held>(static_cast<size_t>(plan.chunks),
                                        Held{.contributors = std::vector<bool>(ranks, false)}));
  for (int rank = 0; rank < plan.world_size; ++rank) {
    for (int chunk = 0; chunk < plan.chunks; ++chunk) {
      if (!contributes(plan, rank, chunk)) continue;
      Held& held = held_[static_cast<size_t>(rank)][static_cast<size_t>(chunk)];
      held.contributors[static_cast<size_t>(rank)] = true;
      held.count = 1;
      held.tree = mix64(static_cast<uint64_t>(rank));
    }
  }
}

void Holdings::apply(int round) {
  struct Write {
    int rank, chunk;
    Held value;
  };
  // The new values wait here, since every rank reads the values that the others held at the start
  // of the round.
  std::vector<Write> writes;
  for (int rank = 0; rank < plan_.world_size; ++rank) {
    for (const Transfer& transfer :
         plan_.rounds[static_cast<size_t>(round)][static_cast<size_t>(rank)].receives) {
      const auto reject = [&](const std::string& what) {
        throw Error(ErrorCode::internal, "plan",
                    fmt::format("{} plan, round {}, rank {}, chunk {}: {}",
                                to_string(plan_.collective), round, rank, transfer.chunk, what));
      };
      Held sum{.contributors = std::vector<bool>(static_cast<size_t>(plan_.world_size), false)};
      for (const int source : transfer.sources) {
        const Held& part = at(source, transfer.chunk);
        if (part.count == 0)
          reject(fmt::format("read from rank {}, which has nothing of it yet", source));
        for (size_t contributor = 0; contributor < sum.contributors.size(); ++contributor) {
          if (!part.contributors[contributor]) continue;
          if (sum.contributors[contributor])
            reject(fmt::format("rank {} adds the contribution of rank {} once more", source,
                               contributor));
          sum.contributors[contributor] = true;
        }
        sum.tree = sum.count == 0 ? part.tree : added(sum.tree, part.tree);
        sum.count += part.count;
      }
      if (transfer.sources.size() > 1) sum.tree = rounded(sum.tree);
      writes.push_back({rank, transfer.chunk, std::move(sum)});
    }
  }
  for (Write& write : writes)
    held_[static_cast<size_t>(write.rank)][static_cast<size_t>(write.chunk)] =
        std::move(write.value);
}

}  // namespace trireme::plan
