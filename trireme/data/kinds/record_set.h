// The data sets whose files are read record by record: data.name is a format of
// records/open.h. No torch.
#pragma once
#include <trireme/data/data_kinds.h>
#include <trireme/data/data_options.h>
#include <trireme/data/dataset.h>
#include <trireme/data/input_memory.h>
#include <trireme/data/kinds/sample_plan.h>
#include <trireme/data/pipeline/field_choice.h>
#include <trireme/data/pipeline/stage.h>
#include <trireme/records/open.h>
#include <trireme/records/record.h>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace trireme::data {

// The samples of such a Dataset.
struct RecordParts {
  DataOptions options;
  std::shared_ptr<const records::Reader> train, test;  // The same one if samples are held out.
  SamplePlan train_plan, test_plan;
  Stages train_stages, test_stages;  // The stages of samples: of_samples().
  FieldWishes wishes;
  bool target_has_length = false;  // See field_choice.h.
  bool keeps_lengths = false;      // A mixture pads the samples itself.
  std::string tokens;              // See FieldChoice.
  int64_t classes = 0;
  int64_t image_bytes = kMostOfImage;  // See image_limits().
};

// A kind for each format, but for those that belong to a kind with keys of its own.
std::vector<DataKind> record_kinds();
// Adds the keys that all kinds of records have.
void add_record_keys(DataKind& kind);

// The files of a part, and how they are opened.
struct PartFiles {
  std::string name;  // train, test
  records::OpenOptions open;
  bool may_be_missing = false;  // A usual name, which nobody has given.
};
// Throws Error(unsupported) if data.name is no format of records, and as check_record_set() does.
std::vector<PartFiles> files_of_parts(const DataOptions& options);
// The tokens of a sample that data.block cuts out of a file; 0: samples are documents.
int64_t block_of(const DataOptions& options);

// Whether a key is given that only records have: stages, fields, bad records that are skipped, a
// service, files on a server. Kinds that read their files otherwise (idx, text) read records then.
bool needs_records(const DataOptions& options);

// Whether a stage keeps samples in memory, or may do so.
bool keeps_in_memory(const DataOptions& options);
// The bytes that the caches in memory may take together.
int64_t most_in_memory(const DataOptions& options);

struct StagesOfParts {
  Stages train, test;
};
// Throws Error(invalid_argument) as parse_stages() does.
StagesOfParts stages_of(const DataOptions& options);

// Throws Error(invalid_argument) naming a stage that mixes samples.
void refuse_mixed_tests(const Stages& stages);

// The same for samples that are tokens.
void refuse_mixed_tokens(const Stages& stages);

// Throws Error(invalid_argument) if data.cache and a stage both say where samples are kept.
void check_cache(const DataOptions& options);
// Checks the keys of stages, before any file is read.
void check_record_set(const DataOptions& options);
Dataset read_record_set(const DataOptions& options);

// The same in two steps, for records that several files have together. The test part may be null.
SharedReader open_train_part(const DataOptions& options);
SharedReader open_test_part(const DataOptions& options);
Dataset read_parts(const DataOptions& options, SharedReader train, SharedReader test);

}  // namespace trireme::data
