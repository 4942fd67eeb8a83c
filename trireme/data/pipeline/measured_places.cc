#include <trireme/data/pipeline/measured_places.h>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

namespace trireme::data {
namespace {

// So many samples, or fewer if they take long.
constexpr int64_t kSamples = 16, kLeastSamples = 2;
constexpr double kLongest = 0.5;
// Cheap samples are loaded again, because a single time of theirs says little.
constexpr double kLongEnough = 0.03;
constexpr int kMostTimes = 20, kLeastTimes = 2;  // Other processes may disturb one of them.
// For the samples that are measured.
constexpr int64_t kMemory = int64_t{1} << 30;
constexpr double kSlack = 1.15;  // Others may be larger than those that were looked at.

// Spread over the data set. One of them takes about `seconds`.
Draws some_samples(int64_t size, double seconds) {
  const auto wanted = static_cast<int64_t>(std::min(kLongest / std::max(seconds, 1e-6), 1e6));
  const int64_t count = std::min(size, std::clamp(wanted, kLeastSamples, kSamples));
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < count; ++i) indices.push_back(i * size / count);
  return {std::move(indices), 0, 1};
}

// The shortest time for one of the samples.
double seconds_of(const Source& source, const Draws& draws) {
  double least = std::numeric_limits<double>::infinity(), all = 0;
  for (int times = 0; times < kLeastTimes || (times < kMostTimes && all < kLongEnough); ++times) {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<size_t> left_out;
    source.get_kept(draws, left_out);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    least = std::min(least, seconds);
    all += seconds;
  }
  return least / static_cast<double>(draws.indices.size());
}

}  // namespace

MeasuredPlaces measure_places(const std::shared_ptr<const records::Reader>& reader,
                              const PipelineOptions& options, const Stages& stages,
                              int64_t samples) {
  const auto source_through = [&](const Stages& all) {
    PipelineOptions own = options;
    own.stages = of_samples(all);
    own.cache_budget = CacheBudget::of_process(kMemory);
    return make_pipeline(reader, std::move(own));
  };
  const FieldChoice fields = choose_fields(reader->fields(), options.fields);
  MeasuredPlaces measured;
  const auto plain = source_through(stages);
  const Draws first({plain->size() - 1}, 0, 1);
  std::vector<size_t> left_out;
  plain->get_kept(first, left_out);  // Loads libraries.
  const Draws draws = some_samples(plain->size(), seconds_of(*plain, first));
  measured.seconds = seconds_of(*plain, draws);
  for (CachePlace& place : places_of_cache(stages, first_form(fields, of_samples(stages)))) {
    const auto source = source_through(place.stages);
    source->get_kept(draws, left_out);  // Fills the cache.
    const CacheUse use = source->cache_use().value();
    if (use.samples == 0 || use.is_full) continue;
    place.seconds = seconds_of(*source, draws);
    place.bytes =
        static_cast<int64_t>(kSlack * static_cast<double>(use.bytes) /
                             static_cast<double>(use.samples) * static_cast<double>(samples));
    measured.places.push_back(std::move(place));
  }
  return measured;
}

}  // namespace trireme::data
