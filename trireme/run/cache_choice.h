// data.cache: auto. It says where a run keeps samples in memory before the run starts.
#pragma once
#include <trireme/run/config.h>
#include <string>

namespace trireme {

// The choice for a configuration.
struct CacheChoice {
  std::string stages;  // data.stages from now on.
  std::string line;    // For people.
};

// Loads a few samples of the training part. Throws Error as read_data() does, or if the samples
// cannot be loaded.
CacheChoice choose_cache(const Config& config);

// For programmes of one process: if data.cache is auto, chooses, and sets data.stages and
// data.cache. Returns the line, or an empty text. Throws Error(unsupported) in a process of a job
// with several, whose launcher has not chosen for all of them.
std::string place_cache(Config& config);

}  // namespace trireme
