// data.name: criteo. No torch.
#pragma once
#include <trireme/data/click_table.h>
#include <trireme/data/data_options.h>
#include <trireme/data/dataset.h>
#include <memory>

namespace trireme::data {

// The samples of a Dataset of clicks.
struct ClickParts {
  std::shared_ptr<const ClickTable> train, test;
};

// Reads the file data.path; without data.path the generated one that ships. data.split_seed draws
// data.test_fraction of its lines for the test.
Dataset read_criteo_set(const DataOptions& options);

}  // namespace trireme::data
