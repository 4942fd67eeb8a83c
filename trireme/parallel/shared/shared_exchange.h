// One copy of parameters and optimizer state for all replicas of a host, updated inside the
// exchange: each replica reads all replicas' gradients of its shard where they lie, reduces them
// and updates the shard, in pieces that stay in cache.
//
// Two ways, chosen by what is asked for:
//   fused     reduce and update in one pass over memory;
//   agreed    reduce; agree on what depends on all gradients (norm, overflow, trust ratios, the
//   other hosts' gradients); update.
// The sum's order depends on the replica's place and the number of replicas only, so runs repeat
// bit for bit.
#pragma once
#include <trireme/comm/host/host_team.h>
#include <trireme/parallel/exchange.h>
#include <trireme/parallel/fused/fused_optimizer.h>
#include <memory>
#include <vector>

namespace trireme {

// COLLECTIVE. `group` has a host_team(). The parameters' storage becomes the shared one, with the
// values of the team's first rank; every rank's optimizer must be alike. Between hosts, reduced
// gradients are all-reduced by each host's first rank.
std::unique_ptr<Exchange> make_shared_exchange(std::shared_ptr<Group> group,
                                               std::vector<NamedTensor> parameters,
                                               std::unique_ptr<fused::FusedOptimizer> optimizer,
                                               ExchangeOptions options);

}  // namespace trireme
