#include <ATen/core/Tensor.h>

#include <trireme/config/registry.h>
#include <trireme/data/click_source.h>
#include <trireme/data/kinds/image_set.h>
#include <trireme/data/kinds/record_set.h>
#include <trireme/data/pipeline/pipeline_source.h>
#include <trireme/data/source_makers.h>
#include <trireme/data/text_source.h>
#include <trireme/records/index.h>
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
  const auto& parts = std::any_cast<const RecordParts&>(data.samples);
  const DataOptions& options = parts.options;
  PipelineOptions each{
      .fields = {options.inputs, options.target},
      .bad_records = {.skip = options.on_bad_record == "skip", .most = options.bad_records},
      .classes = parts.classes,
      .cache_bytes = options.cache_bytes,
      .cache_dir = records::index_folder(options.cache_dir)};
  PipelineOptions train = each, test = each;
  train.part = options.path;
  test.part = data.split.test.empty() ? options.test_path : options.path;
  train.stages = parts.train_stages, train.subset = parts.train_subset;
  test.stages = parts.test_stages, test.subset = parts.test_subset;
  Sources sources{make_pipeline(parts.train, std::move(train)), nullptr};
  if (data.test_samples > 0) sources.test = make_pipeline(parts.test, std::move(test));
  return sources;
}

std::map<std::string, SourceMaker, std::less<>> shipped_makers() {
  std::map<std::string, SourceMaker, std::less<>> makers{{"digits", image_sources},
                                                         {"idx", image_sources},
                                                         {"text", text_sources},
                                                         {"criteo", click_sources}};
  for (const DataKind& kind : record_kinds()) makers.emplace(kind.name, record_sources);
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
