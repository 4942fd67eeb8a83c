#include <ATen/core/Tensor.h>

#include <trireme/data/chained_source.h>
#include <trireme/data/kinds/record_set.h>
#include <trireme/data/packed_source.h>
#include <trireme/data/pipeline/document_source.h>
#include <trireme/data/pipeline/pipeline_source.h>
#include <trireme/data/pipeline/record_pipelines.h>
#include <any>
#include <utility>

namespace trireme::data {
namespace {

// The samples that the plan makes of a reader's records.
std::shared_ptr<const Source> source_of(const std::shared_ptr<const records::Reader>& reader,
                                        const SamplePlan& plan, const std::string& tokens,
                                        PipelineOptions options) {
  std::shared_ptr<const Source> source;
  if (plan.packing) {
    source = std::make_shared<PackedSource>(
        std::make_shared<DocumentSource>(reader, tokens, plan.subset, options.classes,
                                         options.bad_records),
        plan.packing, /*padding=*/0, options.bad_records.skip);
    if (options.wrap) source = options.wrap(std::move(source));
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

PipelineOptions options_of_parts(const RecordParts& parts) {
  const DataOptions& options = parts.options;
  return {.fields = parts.wishes,
          .bad_records = {.skip = skips_bad_records(options), .most = options.bad_records},
          .keeps_lengths = parts.keeps_lengths,
          .classes = parts.classes,
          .image_bytes = parts.image_bytes,
          .cache_dir = options.cache_dir,
          .disk_bytes = options.cache_bytes};
}

}  // namespace

PipelineOptions options_of_training(const Dataset& data) {
  const auto& parts = std::any_cast<const RecordParts&>(data.samples);
  PipelineOptions options = options_of_parts(parts);
  options.stages = parts.train_stages;
  options.subset = parts.train_plan.subset;
  options.has_lengths = parts.train_plan.has_lengths;
  return options;
}

RecordPipelines record_pipelines(const Dataset& data, const WrapPart& wrap) {
  const auto& parts = std::any_cast<const RecordParts&>(data.samples);
  const DataOptions& options = parts.options;
  PipelineOptions each = options_of_parts(parts);
  if (keeps_in_memory(options))
    each.cache_budget = CacheBudget::of_process(most_in_memory(options));
  const auto wrap_part = [&](const char* name) {
    return [&wrap, name](std::shared_ptr<const Source> samples) {
      return wrap ? wrap(name, std::move(samples)) : samples;
    };
  };
  PipelineOptions train = each, test = each;
  train.part = options.path;
  test.part = data.split.test.empty() ? options.test_path : options.path;
  train.stages = parts.train_stages, test.stages = parts.test_stages;
  train.wrap = wrap_part("train"), test.wrap = wrap_part("test");
  RecordPipelines sources{source_of(parts.train, parts.train_plan, parts.tokens, std::move(train)),
                          nullptr};
  if (data.test_samples > 0)
    sources.test = source_of(parts.test, parts.test_plan, parts.tokens, std::move(test));
  return sources;
}

}  // namespace trireme::data
