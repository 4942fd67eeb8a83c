#include <trireme/data/service/served_parts.h>

#include <ATen/core/Tensor.h>

#include <fmt/format.h>

#include <trireme/base/cores.h>
#include <trireme/base/error.h>
#include <trireme/data/kinds/mixture_set.h>
#include <trireme/data/kinds/record_set.h>
#include <trireme/data/pipeline/functions.h>
#include <trireme/data/pipeline/record_pipelines.h>
#include <trireme/data/service/sample_service.h>
#include <trireme/net/shared_memory.h>
#include <algorithm>
#include <any>
#include <utility>

namespace trireme::data {
namespace {

// A service is a process of its own.
void require_functions(const Stages& stages) {
  for (const Stage& stage : stages) {
    try {
      versions_of_functions({stage});
    } catch (const Error&) {
      throw Error(ErrorCode::invalid_argument, "data",
                  fmt::format("the stage {} calls a function that a programme registers, which a "
                              "data service does not know",
                              stage.describe()),
                  "model.library: a shared object that registers it, or data.service: none");
    }
  }
}

}  // namespace

Sources served_sources(const Dataset& data, const DataOptions& options) {
  const std::vector<PartFacts> facts = facts_of_parts(data);
  const auto service = std::make_shared<SampleService>(options);
  const bool skips = skips_bad_records(options);
  RecordPipelines served =
      record_pipelines(data, [&](const std::string& name, std::shared_ptr<const Source> samples) {
        const auto part = std::ranges::find(facts, name, &PartFacts::name);
        service->add({*part, samples});
        return serve_source(service, *part, std::move(samples), skips);
      });
  service->connect();
  return {std::move(served.train), std::move(served.test)};
}

Sources served_mixture(const Dataset& data, Sources samples) {
  const auto& parts = std::any_cast<const MixtureParts&>(data.samples);
  const std::vector<PartFacts> facts = facts_of_parts(data);
  const auto service = std::make_shared<SampleService>(parts.options);
  const bool skips = std::ranges::any_of(parts.sets, [](const Dataset& set) {
    const auto* const records = std::any_cast<RecordParts>(&set.samples);
    return records && skips_bad_records(records->options);
  });
  for (const PartFacts& part : facts) {
    std::shared_ptr<const Source>& source = part.name == "train" ? samples.train : samples.test;
    service->add({part, source});
    source = serve_source(service, part, source, skips);
  }
  service->connect();
  return samples;
}

namespace {

std::vector<ServedPart> mixture_to_serve(const Dataset& data, const MixtureParts& parts) {
  for (const Dataset& set : parts.sets)
    if (const auto* const records = std::any_cast<RecordParts>(&set.samples)) {
      require_functions(records->train_stages);
      require_functions(records->test_stages);
    }
  const Sources samples = samples_of_mixture(data);
  std::vector<ServedPart> served;
  for (PartFacts& part : facts_of_parts(data)) {
    const auto& source = part.name == "train" ? samples.train : samples.test;
    served.push_back({std::move(part), source});
  }
  return served;
}

}  // namespace

std::vector<ServedPart> parts_to_serve(const Dataset& data) {
  if (const auto* const mixture = std::any_cast<MixtureParts>(&data.samples))
    return mixture_to_serve(data, *mixture);
  const auto* const records = std::any_cast<RecordParts>(&data.samples);
  if (!records)
    throw Error(
        ErrorCode::unsupported, "data",
        "a data service makes samples of records and of mixtures only, and this data set has none",
        "data.name: a format of docs/input.md");
  require_functions(records->train_stages);
  require_functions(records->test_stages);
  std::vector<PartFacts> facts = facts_of_parts(data);
  std::vector<ServedPart> parts;
  record_pipelines(data, [&](const std::string& name, std::shared_ptr<const Source> samples) {
    parts.push_back({*std::ranges::find(facts, name, &PartFacts::name), samples});
    return samples;
  });
  return parts;
}

int64_t bytes_to_keep(const DataOptions& options) {
  return options.service_bytes >= 0 ? options.service_bytes : net::available_memory_bytes() / 8;
}

int threads_of_server(const DataOptions& options) {
  return options.service_threads > 0 ? static_cast<int>(options.service_threads) : usable_cores();
}

}  // namespace trireme::data
