// Measures the places of a cache by a few samples.
#pragma once
#include <trireme/data/pipeline/cache_place.h>
#include <trireme/data/pipeline/pipeline_source.h>
#include <cstdint>
#include <memory>
#include <vector>

namespace trireme::data {

struct MeasuredPlaces {
  std::vector<CachePlace> places;  // The places whose samples can be kept.
  double seconds = 0;              // The work for a sample without a cache.
};

// Loads some of the samples of `options` without a cache, and with one at each of the places.
// `samples` is the number of those that the cache would hold. The stages of `options` do not
// count. Throws Error as a source does whose samples cannot be loaded.
MeasuredPlaces measure_places(const std::shared_ptr<const records::Reader>& reader,
                              const PipelineOptions& options, const Stages& stages,
                              int64_t samples);

}  // namespace trireme::data
