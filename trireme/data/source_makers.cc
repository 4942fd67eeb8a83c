#include <ATen/core/Tensor.h>

#include <trireme/config/registry.h>
#include <trireme/data/chained_source.h>
#include <trireme/data/click_source.h>
#include <trireme/data/kinds/image_set.h>
#include <trireme/data/kinds/mixture_set.h>
#include <trireme/data/kinds/record_set.h>
#include <trireme/data/mixture_source.h>
#include <trireme/data/padded_source.h>
#include <trireme/data/pipeline/mixed_source.h>
#include <trireme/data/pipeline/program.h>
#include <trireme/data/pipeline/record_pipelines.h>
#include <trireme/data/service/addresses.h>
#include <trireme/data/service/served_parts.h>
#include <trireme/data/source_makers.h>
#include <trireme/data/text_source.h>
#include <map>
#include <utility>

namespace trireme::data {
namespace {

// Also for new kinds whose reader returns dataset_of() of images.
Sources image_sources(const Dataset& data) {
  const auto& parts = std::any_cast<const ImageParts&>(data.samples);
  Sources sources{std::make_shared<ImageSource>(parts.train), nullptr};
  if (data.test_samples > 0) sources.test = std::make_shared<ImageSource>(parts.test);
  return sources;
}

Sources record_sources(const Dataset& data) {
  const DataOptions& options = std::any_cast<const RecordParts&>(data.samples).options;
  if (!service_addresses(options.service).empty()) return served_sources(data, options);
  RecordPipelines own = record_pipelines(data);
  return {std::move(own.train), std::move(own.test)};
}

// For sets that are records if their keys need them.
SourceMaker records_or(SourceMaker others) {
  return [others = std::move(others)](const Dataset& data) {
    return std::any_cast<RecordParts>(&data.samples) ? record_sources(data) : others(data);
  };
}

Sources mixture_sources(const Dataset& data) {
  const auto& parts = std::any_cast<const MixtureParts&>(data.samples);
  Sources made = samples_of_mixture(data);
  if (!service_addresses(parts.options.service).empty())
    made = served_mixture(data, std::move(made));
  Stages mixes;
  for (const Stage& stage : parts.stages.train)
    if (stage.form->kind == StageKind::mix) mixes.push_back(stage);
  if (BatchMix mix(mixes, data.input.classes); !mix.empty())
    made.train = mix_source(std::move(made.train), std::move(mix));
  return made;
}

// Samples of several sources are padded together.
std::shared_ptr<const Source> padded_of_mixture(const MixtureParts& parts, const Stages& stages,
                                                std::shared_ptr<const Source> samples) {
  const Stage* const pad = find_stage(stages, "pad");
  if (!pad || !samples) return samples;
  PadOptions options = pad_options_of(*pad);
  options.pads_target = std::any_cast<const RecordParts&>(parts.sets[0].samples).target_has_length;
  return std::make_shared<PaddedSource>(std::move(samples), options);
}

std::map<std::string, SourceMaker, std::less<>> shipped_makers() {
  std::map<std::string, SourceMaker, std::less<>> makers{{"digits", image_sources},
                                                         {"idx", records_or(image_sources)},
                                                         {"text", records_or(text_sources)},
                                                         {"criteo", click_sources},
                                                         {"mixture", mixture_sources}};
  for (const DataKind& kind : record_kinds()) makers.emplace(kind.name, record_sources);
  makers.emplace("zip", record_sources);
  return makers;
}

config::Registry<SourceMaker>& source_makers() {
  static config::Registry<SourceMaker> makers("data set", shipped_makers());
  return makers;
}

}  // namespace

Sources samples_of_mixture(const Dataset& data) {
  const auto& parts = std::any_cast<const MixtureParts&>(data.samples);
  std::vector<std::shared_ptr<const Source>> trains, tests;
  for (size_t i = 0; i < parts.sets.size(); ++i) {
    Sources one = make_sources(parts.kinds[i], parts.sets[i]);
    trains.push_back(std::move(one.train));
    if (one.test && parts.uses_test(i)) tests.push_back(std::move(one.test));
  }
  Sources samples{std::make_shared<MixtureSource>(std::move(trains), data.mixture), nullptr};
  if (!tests.empty()) samples.test = std::make_shared<ChainedSource>(std::move(tests));
  return {padded_of_mixture(parts, parts.stages.train, std::move(samples.train)),
          padded_of_mixture(parts, parts.stages.test, std::move(samples.test))};
}

Sources make_sources(const std::string& name, const Dataset& data) {
  return source_makers().find(name)(data);
}

void add_source_maker(const std::string& name, SourceMaker maker) {
  source_makers().add(name, std::move(maker));
}

}  // namespace trireme::data
