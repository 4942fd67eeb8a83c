// The test part of a data set whose files hold one part alone.
#pragma once
#include <trireme/data/data_options.h>
#include <trireme/data/dataset.h>
#include <cmath>
#include <cstdint>
#include <numeric>

namespace trireme::data {

// The test part of samples that follow each other, such as the blocks of a text: neighbours have
// much in common, so the end is held out.
inline plan::Split split_at_end(int64_t samples, double test_fraction) {
  const auto test = std::llround(static_cast<double>(samples) * test_fraction);
  plan::Split split;
  split.train.resize(static_cast<size_t>(samples - test));
  split.test.resize(static_cast<size_t>(test));
  std::iota(split.train.begin(), split.train.end(), int64_t{0});
  std::iota(split.test.begin(), split.test.end(), samples - test);
  return split;
}

// Moves the samples that data.test_fraction holds out from `train` to `test`, which is empty, and
// notes in `data` which ones. `Table` has select(table, samples).
template <typename Table>
void hold_out(const DataOptions& options, Table& train, Table& test, Dataset& data) {
  if (options.test_fraction <= 0) return;
  data.split = plan::plan_split(train.count, options.test_fraction,
                                static_cast<uint64_t>(options.split_seed));
  test = select(train, data.split.test);
  train = select(train, data.split.train);
}

}  // namespace trireme::data
