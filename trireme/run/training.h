// A configuration made into objects that are ready to train.
#pragma once
#include <trireme/data/source.h>
#include <trireme/run/config.h>
#include <trireme/train/trainer.h>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace trireme {

// A programme may replace any part before it trains: Trainer(world, training.options).fit(
// training.job, training.train, training.test). With another training set, replace
// options.config["data.content"] too, or erase it: a run resumes only with the content that its
// checkpoint names. The same holds for the test set and "data.test_content".
struct Training {
  TrainerOptions options;
  Job job;
  std::shared_ptr<const Source> train, test;  // test may be null.
};

// The data of a source that a programme has registered.
struct OwnData {
  std::shared_ptr<const Source> train, test;  // test may be null.
  models::InputSpec input;                    // Models that come with Trireme are made for it.
  // A text that differs if the samples differ, such as a digest of their file: a run does not
  // resume with other content. If it is empty, data.path takes its place. Then a run does not
  // notice that a file has changed, and does not resume if it has moved.
  std::string content;
  // The sizes of blocks of training samples that are best read as a whole, for data.shuffle:
  // blocks; empty: all are one block.
  std::vector<int64_t> train_blocks = {};
};
using DataMaker = std::function<OwnData(const data::DataOptions&)>;
// Adds a name for data.name. Call it before the configuration is read, on every rank. A resumed
// run recognises the data by OwnData::content. Throws Error(invalid_argument) if the name is
// taken.
void register_data(const std::string& name, DataMaker maker);

// Checks the configuration, reads the data, and makes the factories of model and optimizer. Throws
// Error naming the file or the key, and Error(unsupported) if data.cache is auto in a process that
// a launcher has started.
Training training_of(const Config& config);
// The same in a job, whose workers need one choice if data.cache is auto. Then it is COLLECTIVE
// over them, connects them, and worker 0 chooses for all (run/place_cache.h).
Training training_of(const Config& config, World& world);

// The optimizer that the options name. Throws Error(invalid_argument) if there is none of the
// name.
OptimizerFactory make_optimizer(const OptimizerOptions& options);

}  // namespace trireme
