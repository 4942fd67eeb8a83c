#include <trireme/run/place_cache.h>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/environment.h>
#include <trireme/base/error.h>
#include <trireme/data/kinds/mixture_options.h>
#include <trireme/data/kinds/mixture_set.h>
#include <trireme/data/kinds/mixture_stages.h>
#include <trireme/data/kinds/record_set.h>
#include <trireme/data/pipeline/measured_places.h>
#include <trireme/data/pipeline/record_pipelines.h>
#include <trireme/data/service/addresses.h>
#include <trireme/membership/identity.h>
#include <trireme/run/dataset.h>
#include <any>
#include <optional>
#include <vector>

namespace trireme {
namespace {

int64_t records_of(const data::SharedReader& reader, const data::SamplePlan& plan) {
  return plan.subset.empty() ? reader->size() : plan.subset.size();
}

// A thread of a loader computes alone.
class OneThread {
 public:
  OneThread() : before_(at::get_num_threads()) { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before_); }

 private:
  const int before_;
};

// The choice for one data set.
struct PlaceInSet {
  std::optional<data::Stages> stages;  // All of them with the cache; nothing: there is none.
  std::string text;                    // For people.
};

PlaceInSet place_in(const Dataset& set, bool uses_test) {
  const auto* const parts = std::any_cast<data::RecordParts>(&set.samples);
  if (!parts) return {{}, "no cache, because the samples are in memory already"};
  if (parts->train_plan.packing)
    return {{}, "no cache, because packs are made of what their files have"};
  const data::DataOptions& options = parts->options;
  const int64_t budget = data::most_in_memory(options);
  int64_t samples = records_of(parts->train, parts->train_plan);
  // Without stages of its own the test part has the same cache.
  if (uses_test && set.test_samples > 0 && options.test_stages.empty())
    samples += records_of(parts->test, parts->test_plan);
  data::PipelineOptions pipeline = data::options_of_training(set);
  pipeline.keeps_lengths = false;  // The samples that are measured are padded here.
  const data::Stages stages = data::parse_stages("data.stages", options.stages);
  const auto [places, seconds] = data::measure_places(parts->train, pipeline, stages, samples);
  PlaceInSet place{{}, data::describe_choice(places, seconds, budget)};
  if (const auto* const best = data::best_place(places, seconds, budget))
    place.stages = best->stages;
  return place;
}

// Each source by itself, in its part of the memory.
CacheChoice choose_for_sources(const data::DataOptions& options, const data::MixtureParts& parts) {
  const std::vector<data::SourceOptions> sources = data::sources_with_stages(options);
  CacheChoice choice{options.stages, std::vector<std::optional<std::string>>(sources.size()), ""};
  std::vector<std::string> texts;
  std::string settings;
  for (size_t i = 0; i < sources.size(); ++i) {
    const std::string& name = sources[i].name;
    if (sources[i].options.cache != "auto") {
      texts.push_back(fmt::format("source {}: as its stages say", name));
      continue;
    }
    const PlaceInSet place =
        data::with_source(name, [&] { return place_in(parts.sets[i], parts.uses_test(i)); });
    texts.push_back(fmt::format("source {}: {}", name, place.text));
    if (!place.stages) continue;
    const std::string stages = data::describe(data::without_batch_stages(*place.stages));
    settings += fmt::format(", in source {} stages: \"{}\"", name, stages);
    choice.of_sources[i] = stages;
  }
  choice.line =
      fmt::format("input: {}; to keep it: data.cache=stages{}", fmt::join(texts, "; "), settings);
  return choice;
}

}  // namespace

CacheChoice choose_cache(const Config& config) {
  const data::DataOptions& options = config.data;
  CacheChoice choice{options.stages,
                     {},
                     "input: no cache, because a data service makes the samples, and keeps them"};
  if (!data::service_addresses(options.service).empty()) return choice;
  const Dataset data = read_data(config);
  const OneThread one;
  if (const auto* const mixture = std::any_cast<data::MixtureParts>(&data.samples))
    return choose_for_sources(options, *mixture);
  const PlaceInSet place = place_in(data, true);
  choice.line = fmt::format("input: {}; to keep it: data.cache=stages", place.text);
  if (place.stages) {
    choice.stages = data::describe(*place.stages);
    choice.line += fmt::format(" data.stages=\"{}\"", choice.stages);
  }
  return choice;
}

std::string place_cache(Config& config) {
  if (!wants_cache_choice(config)) return "";
  if (membership::resolve_identity(Environment::of_process()).launcher !=
      membership::Launcher::alone)
    throw Error(ErrorCode::unsupported, "data",
                "data.cache is auto, and this process is one of several that something else than "
                "trireme train has started: all of a host need the same place",
                "the settings that trireme bench input prints for this configuration");
  const CacheChoice choice = choose_cache(config);
  apply(choice, config);
  return choice.line;
}

}  // namespace trireme
