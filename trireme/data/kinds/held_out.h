// The test part of a data set whose files hold one part alone.
#pragma once
#include <trireme/data/data_options.h>
#include <trireme/data/dataset.h>
#include <cstdint>

namespace trireme::data {

// Moves the samples that data.test_fraction holds out from `train` to `test`, which is empty, and
// notes in `data` which ones. `Table` has select(table, samples).
template <typename Table>
void hold_out(const DataOptions& options, Table& train, Table& test, Dataset& data) {
  if (options.test_fraction <= 0) return;
  data.split = plan::plan_split(train.count, options.test_fraction,
                                static_cast<uint64_t>(options.split_seed));
  test = select(train, data.split.test.numbers());
  train = select(train, data.split.train.numbers());
}

}  // namespace trireme::data
