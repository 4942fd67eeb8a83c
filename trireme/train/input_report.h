// The part of a report that says how the data came: Report::input.
#pragma once
#include <trireme/base/json.h>
#include <trireme/comm/group.h>
#include <trireme/data/loader.h>
#include <trireme/data/source.h>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

// The facts of one rank.
struct InputOfRank {
  double waited = 0, step_seconds = 0;  // The steps of this process, and their time without data.
  // The process has them in common; counts_process says which rank tells them.
  std::vector<data::StageUse> stages;
  LoaderTuning tuning;
  // The numbers of the records that could not be read: Source::bad_records() of both parts.
  std::vector<int64_t> skipped = {}, skipped_in_test = {};
  bool counts_process = true;
  std::optional<data::CacheUse> cache = {};
  // The cache that is missing, and the memory that it could have. Rank 0 calls it if the ranks
  // waited.
  std::function<std::optional<data::CacheAdvice>()> advice = {};
  int64_t cache_bytes = 0;
  // With a data service: the samples that it gave, and those that this process made.
  std::optional<data::ServedCounts> served = {};
};

// COLLECTIVE. The same on every rank, except for the cache: rank 0 tells that of its host.
Json report_of_input(const InputOfRank& own, Group& group);

Json json_of_cache(const data::CacheUse& cache);

// "waited 3.1 % of step time; slowest stage decode, 2.0 of 2 threads busy: data.threads=3, or
// cache behind decode (150.0 MB)"; empty if less than a hundredth was waited. `input` is a result
// of report_of_input().
std::string line_of_input(const Json& input);

// "data.threads=3 data.prefetch=6": the settings that keep what was found.
std::string settings_of(const data::LoaderSetting& setting);

}  // namespace trireme
