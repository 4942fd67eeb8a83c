// The sources of a data set of records, as a configuration describes them.
#pragma once
#include <trireme/data/dataset.h>
#include <trireme/data/pipeline/pipeline_source.h>
#include <trireme/data/source.h>
#include <functional>
#include <memory>
#include <string>

namespace trireme::data {

struct RecordPipelines {
  std::shared_ptr<const Source> train, test;  // test may be null.
};

// Stands between the samples of a part ("train" or "test") and what is made of them: batches that
// are mixed, and other numbers of samples.
using WrapPart = std::function<std::shared_ptr<const Source>(const std::string&,
                                                             std::shared_ptr<const Source>)>;
RecordPipelines record_pipelines(const Dataset& data, const WrapPart& wrap = {});

// The options of the training part, for its samples one by one: without memory for a cache.
PipelineOptions options_of_training(const Dataset& data);

}  // namespace trireme::data
