// The data sets whose files are read record by record: data.name is a format of
// records/open.h. No torch.
#pragma once
#include <trireme/data/data_kinds.h>
#include <trireme/data/data_options.h>
#include <trireme/data/dataset.h>
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
  // The records of each part, if samples are held out; otherwise empty.
  std::vector<int64_t> train_subset, test_subset;
  Stages train_stages, test_stages;
  int64_t classes = 0;
};

// A kind for each format.
std::vector<DataKind> record_kinds();

// The files of a part, and how they are opened.
struct PartFiles {
  std::string name;  // train, test
  records::OpenOptions open;
  bool may_be_missing = false;  // A usual name, which nobody has given.
};
// Throws Error(unsupported) if data.name is no format of records, and as check_record_set() does.
std::vector<PartFiles> files_of_parts(const DataOptions& options);

// Whether a stage keeps samples in memory.
bool keeps_in_memory(const DataOptions& options);

struct StagesOfParts {
  Stages train, test;
};
// Throws Error(invalid_argument) as parse_stages() does.
StagesOfParts stages_of(const DataOptions& options);

// Checks the keys of stages, before any file is read.
void check_record_set(const DataOptions& options);
Dataset read_record_set(const DataOptions& options);

}  // namespace trireme::data
