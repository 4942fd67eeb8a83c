// The places in the stages of a data set where a cache may stand, and the choice among them. Pure.
// No torch.
#pragma once
#include <trireme/data/pipeline/stage.h>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme::data {

// A cache in memory behind one of the stages.
struct CachePlace {
  std::string after;   // The stage in front of it; empty: none.
  Stages stages;       // All stages, with the cache.
  int64_t bytes = 0;   // The size of all samples, as far as a few of them tell.
  double seconds = 0;  // The work for a sample of which the cache has the first part.
};

// The places that the rules of stages allow, in their order, without numbers. `first` is the form
// in which samples come.
std::vector<CachePlace> places_of_cache(const Stages& stages, SampleForm first);

// The part of the work `seconds` for a sample that a cache there saves, as a mean over all
// samples: with `budget` bytes it may hold only some of them.
double saved_share(const CachePlace& place, double seconds, int64_t budget);
// The place that saves most; of those that save nearly as much, the one of the fewest bytes. Null
// if no place saves a tenth.
const CachePlace* best_place(const std::vector<CachePlace>& places, double seconds,
                             int64_t budget);

// For people: the place that was chosen, and the reason.
std::string describe_choice(const std::vector<CachePlace>& places, double seconds, int64_t budget);

}  // namespace trireme::data
