#include <trireme/run/place_cache.h>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/deadline.h>
#include <trireme/base/environment.h>
#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/data/kinds/mixture_options.h>
#include <trireme/data/kinds/mixture_set.h>
#include <trireme/data/kinds/mixture_stages.h>
#include <trireme/data/kinds/record_set.h>
#include <trireme/data/pipeline/measured_places.h>
#include <trireme/data/pipeline/record_pipelines.h>
#include <trireme/data/service/addresses.h>
#include <trireme/membership/identity.h>
#include <trireme/run/dataset.h>
#include <trireme/run/input_plan.h>
#include <any>
#include <atomic>
#include <exception>
#include <optional>
#include <utility>
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

// Leaves another input than that of worker 0 as it is, so that the comparison of configurations
// names the difference.
void apply_to_equal_input(const CacheChoice& choice, Config& config) {
  Config placed = config;
  apply(choice, placed);
  if (input_plan_of(placed).digest() == input_plan_of(config).digest()) config = std::move(placed);
}

// The failure of worker 0, for the other workers.
std::string text_of_failure(const std::exception& failure) {
  const auto* const error = dynamic_cast<const Error*>(&failure);
  const auto [what, remedy] = parts_of(failure);
  return Json{{"code", static_cast<int>(error ? error->code() : ErrorCode::internal)},
              {"what", what},
              {"remedy", remedy}}
      .dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

Error failure_in(const Json& told) {
  return {static_cast<ErrorCode>(told.at("code").get<int>()), "data",
          fmt::format("data.cache is auto, and worker 0 cannot choose: {}",
                      told.at("what").get<std::string>()),
          told.at("remedy").get<std::string>()};
}

// COLLECTIVE. After a failure no worker ends before all have heard of it.
void let_all_hear(World& world, const std::string& key) {
  try {
    world.agree(key, {{"place", "none"}});
  } catch (const Error&) {  // Another worker was lost meanwhile.
  }
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
  const CacheChoice choice = choose_cache(config);
  apply(choice, config);
  return choice.line;
}

std::string place_cache_in_job(Config& config, World* world, int replicas) {
  if (!wants_cache_choice(config)) return "";
  if (!world) {
    if (membership::resolve_identity(Environment::of_process()).launcher !=
        membership::Launcher::alone)
      throw Error(ErrorCode::unsupported, "data",
                  "data.cache is auto, and this process is one of several that something else "
                  "than trireme train has started: they need one choice",
                  "the job's World for training_of() or Pipeline::open(), or the settings that "
                  "trireme bench input prints for this configuration");
    return place_cache(config);
  }
  if (!world->identity().is_worker() || world->is_elastic() || world->workers() == 1)
    return place_cache(config);
  // Files that are missing here end the run before anything connects. Worker 0 reads when it
  // chooses, and its error is told to all.
  if (world->worker() != 0) read_data(config);
  world->set_terms({{"data.cache", "auto"}});
  world->set_phase(Phase::connecting);
  world->connect(replicas);
  world->set_phase(Phase::data);
  static std::atomic<int> choices{0};  // The same number on all workers, as they all come here.
  const std::string key = fmt::format("place of the cache, choice {}", ++choices);
  std::exception_ptr failure;
  std::string told;
  if (world->worker() == 0) {
    try {
      told = to_json(choose_cache(config)).dump();
    } catch (const std::exception& error) {
      failure = std::current_exception();
      told = text_of_failure(error);
    }
    world->set_value(key, told);
  } else {
    told = world->get_value(key, Deadline::after(kPatienceForChoice));
  }
  const Json json = Json::parse(told);
  if (const auto choice = cache_choice_from(json)) {
    apply_to_equal_input(*choice, config);
    return world->worker() == 0 ? choice->line : "";
  }
  let_all_hear(*world, key);
  if (failure) std::rethrow_exception(failure);
  throw failure_in(json);
}

}  // namespace trireme
