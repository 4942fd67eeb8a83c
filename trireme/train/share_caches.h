// Memory for the stage cache that the workers of a host have in common, in jobs that no launcher
// of Trireme has started.
#pragma once
#include <trireme/comm/world.h>
#include <trireme/data/pipeline/cache_budget.h>
#include <trireme/train/trainer_options.h>
#include <memory>

namespace trireme {

// COLLECTIVE over the workers, which are connected. The first worker of each host makes the memory
// and tells the others by the job's key-value store. It has no name in the file system, so nothing
// is left behind. Caches use the memory while the returned object lives; null: there is nothing to
// share, or this worker has not found the memory and has a cache of its own.
std::shared_ptr<void> share_caches(World& world, const TrainerOptions& options);

}  // namespace trireme
