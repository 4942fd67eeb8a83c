#include <trireme/data/pipeline/cache_place.h>

#include <fmt/format.h>
#include <trireme/base/units.h>
#include <algorithm>

namespace trireme::data {
namespace {

constexpr double kWorthIt = 0.1, kNearly = 0.9;

CachePlace place_behind(const Stages& stages, size_t count) {
  CachePlace place{.after = count == 0 ? "" : std::string(stages[count - 1].form->name),
                   .stages = stages};
  place.stages.insert(place.stages.begin() + static_cast<std::ptrdiff_t>(count),
                      parse_stages("data.stages", "cache").front());
  return place;
}

double kept_share(const CachePlace& place, int64_t budget) {
  if (place.bytes <= budget) return 1;
  return static_cast<double>(budget) / static_cast<double>(place.bytes);
}

std::string name_of(const CachePlace& place) {
  return place.after.empty() ? "the records" : place.after;
}

}  // namespace

std::vector<CachePlace> places_of_cache(const Stages& stages, SampleForm first) {
  std::vector<CachePlace> places;
  if (find_stage(stages, "cache") || find_stage(stages, "pack")) return places;
  // Images of bytes lie in their files as a cache would have them.
  if (first == SampleForm::tensors) places.push_back(place_behind(stages, 0));
  for (size_t i = 0; i < stages.size(); ++i) {
    const StageForm& form = *stages[i].form;
    if (form.kind == StageKind::order) continue;
    if (form.is_random || form.kind != StageKind::sample) break;
    // In front of a cache a function gets another draw, which it may look at.
    if (form.name == "map") break;
    if (i + 1 < stages.size() && crops_while_decoding(stages[i], stages[i + 1])) break;
    places.push_back(place_behind(stages, i + 1));
  }
  return places;
}

double saved_share(const CachePlace& place, double seconds, int64_t budget) {
  if (seconds <= 0) return 0;
  return kept_share(place, budget) * (seconds - place.seconds) / seconds;
}

const CachePlace* best_place(const std::vector<CachePlace>& places, double seconds,
                             int64_t budget) {
  double most = 0;
  for (const CachePlace& place : places)
    most = std::max(most, saved_share(place, seconds, budget));
  if (most < kWorthIt) return nullptr;
  const CachePlace* best = nullptr;
  for (const CachePlace& place : places)
    if (saved_share(place, seconds, budget) >= kNearly * most &&
        (!best || place.bytes < best->bytes))
      best = &place;
  return best;
}

std::string describe_choice(const std::vector<CachePlace>& places, double seconds,
                            int64_t budget) {
  if (places.empty()) return "no cache, because no stage may stand in front of one";
  const auto percent = [&](const CachePlace& place) {
    return 100 * saved_share(place, seconds, budget);
  };
  if (const CachePlace* const best = best_place(places, seconds, budget)) {
    const double kept = kept_share(*best, budget);
    return fmt::format(
        "a cache behind {} saves {:.0f} % of the work for a sample, with {} of {}{}",
        name_of(*best), percent(*best), format_bytes(std::min(best->bytes, budget)),
        format_bytes(budget),
        kept < 1 ? fmt::format(", which hold {:.0f} % of the samples", 100 * kept) : "");
  }
  const CachePlace& best = *std::ranges::max_element(places, {}, percent);
  return fmt::format(
      "no cache, because the best one, behind {}, saves {:.0f} % of the work for a sample",
      name_of(best), std::max(0.0, percent(best)));
}

}  // namespace trireme::data
