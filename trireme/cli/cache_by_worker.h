// data.cache: auto in `trireme`, which has no torch: `trireme-worker` chooses.
#pragma once
#include <trireme/run/config.h>

namespace trireme::cli {

// Replaces data.cache=auto by the places that a few samples show, for all processes that this one
// starts, and says so unless `quiet`. Returns kExitOk, or the exit code of the process that
// measured, which has said what is wrong. Throws Error(timeout), and Error(peer_lost) if that
// process was killed.
int place_cache_by_worker(Config& config, bool quiet);

}  // namespace trireme::cli
