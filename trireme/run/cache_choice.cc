#include <trireme/run/cache_choice.h>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <trireme/base/environment.h>
#include <trireme/base/error.h>
#include <trireme/data/kinds/record_set.h>
#include <trireme/data/pipeline/measured_places.h>
#include <trireme/data/pipeline/record_pipelines.h>
#include <trireme/data/service/addresses.h>
#include <trireme/membership/identity.h>
#include <trireme/run/dataset.h>
#include <any>

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

}  // namespace

CacheChoice choose_cache(const Config& config) {
  const data::DataOptions& options = config.data;
  const auto none = [&](const char* reason) {
    return CacheChoice{options.stages, std::string("input: no cache, because ") + reason};
  };
  if (!data::service_addresses(options.service).empty())
    return none("a data service makes the samples, and keeps them");
  const Dataset data = read_data(config);
  const auto* const parts = std::any_cast<data::RecordParts>(&data.samples);
  if (!parts) return none("the samples are in memory already");
  if (parts->train_plan.packing) return none("packs are made of what their files have");
  const int64_t budget = data::most_in_memory(options);
  int64_t samples = records_of(parts->train, parts->train_plan);
  // Without stages of its own the test part has the same cache.
  if (data.test_samples > 0 && options.test_stages.empty())
    samples += records_of(parts->test, parts->test_plan);
  const OneThread one;
  const data::Stages stages = data::parse_stages("data.stages", options.stages);
  const auto [places, seconds] =
      data::measure_places(parts->train, data::options_of_training(data), stages, samples);
  const data::CachePlace* const best = data::best_place(places, seconds, budget);
  return {best ? describe(best->stages) : options.stages,
          "input: " + data::describe_choice(places, seconds, budget)};
}

std::string place_cache(Config& config) {
  if (config.data.cache != "auto") return "";
  if (membership::resolve_identity(Environment::of_process()).launcher !=
      membership::Launcher::alone)
    throw Error(ErrorCode::unsupported, "data",
                "data.cache is auto, and this process is one of several that something else than "
                "trireme train has started: all of a host need the same place",
                "the settings that trireme bench input prints for this configuration");
  CacheChoice choice = choose_cache(config);
  config.data.stages = std::move(choice.stages);
  config.data.cache = "stages";
  return choice.line;
}

}  // namespace trireme
