// data.cache: auto. It finds by a few samples where a run keeps samples in memory.
#pragma once
#include <trireme/comm/world.h>
#include <trireme/run/cache_choice.h>
#include <string>

namespace trireme {

// Loads a few samples of the training part, and of that of each source of a mixture. Throws Error
// as read_data() does, or if the samples cannot be loaded.
CacheChoice choose_cache(const Config& config);

// If a choice is wanted, makes it for this process, and applies it. Returns its line, or an empty
// text.
std::string place_cache(Config& config);

// The same for a process that may be one of a job. COLLECTIVE over the workers if a choice is
// wanted in a job that is not elastic and has several: they connect with so many `replicas`,
// worker 0 chooses, and all apply its choice, unless they have another input (run/input_plan.h).
// The others return an empty text. If worker 0 cannot choose, its error is thrown on each of them.
// A worker of an elastic job and a side task share no memory for caches with others, and choose
// for themselves. Throws Error(unsupported) without a world in a process that a launcher has
// started, and Error(timeout | peer_lost) as World does.
std::string place_cache_in_job(Config& config, World* world, int replicas = 1);

}  // namespace trireme
