// data.cache: auto. It finds by a few samples where a run keeps samples in memory.
#pragma once
#include <trireme/run/cache_choice.h>
#include <string>

namespace trireme {

// Loads a few samples of the training part, and of that of each source of a mixture. Throws Error
// as read_data() does, or if the samples cannot be loaded.
CacheChoice choose_cache(const Config& config);

// For programmes of one process: if a choice is wanted, makes it and applies it. Returns its line,
// or an empty text. Throws Error(unsupported) in a process of a job with several, whose launcher
// has not chosen for all of them.
std::string place_cache(Config& config);

}  // namespace trireme
