// One copy of parameters and optimizer state for all replicas of a host, updated inside the
// exchange. Each replica owns a shard: it reads all replicas' gradients of the shard in place,
// reduces them and updates the shard, in pieces that stay in cache.
//
// There are two ways, chosen by the options:
//   fused     reduce and update in one pass over memory;
//   agreed    reduce; agree on what depends on all gradients (norm, overflow, trust ratios, the
//             other hosts' gradients); update.
// The order of the sum depends only on the replica's place and the number of replicas, so runs
// repeat bit for bit.
#pragma once
#include <trireme/comm/host/host_team.h>
#include <trireme/parallel/exchange.h>
#include <trireme/parallel/fused/fused_optimizer.h>
#include <trireme/parallel/model.h>
#include <memory>
#include <vector>

namespace trireme {

class SharedExchange : public Exchange {
 public:
  // COLLECTIVE. Makes all replicas' parameters rank 0's, after rank 0 has changed or loaded them.
  virtual void sync_parameters() = 0;
  // Looks for changes that user code made to shared parameters, in all that this rank watches. The
  // other ranks must not update parameters meanwhile.
  virtual ParameterChange find_change() const = 0;
  // See ModelMemory::paged().
  virtual std::vector<Block> paged(const std::vector<Block>& blocks) = 0;
  // True after an error of exchange() if parameters and state may belong to no step at all.
  virtual bool is_torn() const = 0;
};

// COLLECTIVE. `group` has a host_team(), and `plan` a layout. The parameters' storage becomes the
// shared one, with the values of the team's first rank. The optimizers of all ranks must be alike.
// Between hosts, each host's first rank all-reduces the reduced gradients.
std::unique_ptr<SharedExchange> make_shared_exchange(
    std::shared_ptr<Group> group, std::vector<NamedTensor> parameters,
    std::unique_ptr<fused::FusedOptimizer> optimizer, plan::EnginePlan plan,
    ExchangeOptions options);

}  // namespace trireme
