// Several data sets in stated shares: data.name=mixture. No torch.
#pragma once
#include <trireme/data/data_kinds.h>
#include <trireme/data/dataset.h>
#include <trireme/data/kinds/record_set.h>
#include <string>
#include <vector>

namespace trireme::data {

// The samples of such a Dataset.
struct MixtureParts {
  DataOptions options;
  std::vector<std::string> kinds;
  std::vector<Dataset> sets;
  StagesOfParts stages;       // Those of the mixture itself, for batches.
  bool has_own_test = false;  // That of data.test_path, which the first source has read.

  // Whether the test part of a source belongs to that of the mixture.
  bool uses_test(size_t source) const { return !has_own_test || source == 0; }
};

// The options of each data set that a configuration names: of the sources, or the one that it is.
std::vector<DataOptions> sets_of(const DataOptions& options);

// The number of caches in memory: those of the training part and the test part of each data set
// whose stages have one.
int caches_in_memory(const DataOptions& options);

// `others` are the kinds that its sources may have; it takes their keys, as defaults of all.
DataKind mixture_kind(const std::vector<DataKind>& others);

}  // namespace trireme::data
