#include <ATen/core/Tensor.h>

#include <trireme/config/registry.h>
#include <trireme/data/chained_source.h>
#include <trireme/data/click_source.h>
#include <trireme/data/kinds/image_set.h>
#include <trireme/data/kinds/mixture_set.h>
#include <trireme/data/kinds/record_set.h>
#include <trireme/data/mixture_source.h>
#include <trireme/data/packed_source.h>
#include <trireme/data/pipeline/document_source.h>
#include <trireme/data/pipeline/pipeline_source.h>
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

// The samples that the plan makes of a reader's records.
std::shared_ptr<const Source> source_of(const std::shared_ptr<const records::Reader>& reader,
                                        const SamplePlan& plan, const std::string& tokens,
                                        PipelineOptions options) {
  std::shared_ptr<const Source> source;
  if (plan.packing) {
    source = std::make_shared<PackedSource>(
        std::make_shared<DocumentSource>(reader, tokens, plan.subset), plan.packing);
  } else {
    options.subset = plan.subset;
    options.has_lengths = plan.has_lengths;
    source = make_pipeline(reader, std::move(options));
  }
  if (source->size() == plan.samples) return source;
  return std::make_shared<RenumberedSource>(
      source, plan.samples, [numbers = std::make_shared<const SamplePlan>(plan)](int64_t sample) {
        return numbers->number_of(sample);
      });
}

Sources record_sources(const Dataset& data) {
  const auto& parts = std::any_cast<const RecordParts&>(data.samples);
  const DataOptions& options = parts.options;
  PipelineOptions each{
      .fields = {options.inputs, options.target, parts.is_padded},
      .bad_records = {.skip = options.on_bad_record == "skip", .most = options.bad_records},
      .classes = parts.classes,
      .cache_dir = options.cache_dir,
      .disk_bytes = options.cache_bytes};
  if (keeps_in_memory(options))
    each.cache_budget = CacheBudget::of_process(most_in_memory(options));
  PipelineOptions train = each, test = each;
  train.part = options.path;
  test.part = data.split.test.empty() ? options.test_path : options.path;
  train.stages = parts.train_stages, test.stages = parts.test_stages;
  Sources sources{source_of(parts.train, parts.train_plan, parts.tokens, std::move(train)),
                  nullptr};
  if (data.test_samples > 0)
    sources.test = source_of(parts.test, parts.test_plan, parts.tokens, std::move(test));
  return sources;
}

Sources mixture_sources(const Dataset& data) {
  const auto& parts = std::any_cast<const MixtureParts&>(data.samples);
  std::vector<std::shared_ptr<const Source>> trains, tests;
  for (size_t i = 0; i < parts.sets.size(); ++i) {
    Sources one = make_sources(parts.kinds[i], parts.sets[i]);
    trains.push_back(std::move(one.train));
    if (one.test && parts.uses_test(i)) tests.push_back(std::move(one.test));
  }
  Sources sources{std::make_shared<MixtureSource>(std::move(trains), data.mixture), nullptr};
  if (!tests.empty()) sources.test = std::make_shared<ChainedSource>(std::move(tests));
  return sources;
}

std::map<std::string, SourceMaker, std::less<>> shipped_makers() {
  std::map<std::string, SourceMaker, std::less<>> makers{{"digits", image_sources},
                                                         {"idx", image_sources},
                                                         {"text", text_sources},
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

Sources make_sources(const std::string& name, const Dataset& data) {
  return source_makers().find(name)(data);
}

void add_source_maker(const std::string& name, SourceMaker maker) {
  source_makers().add(name, std::move(maker));
}

}  // namespace trireme::data
