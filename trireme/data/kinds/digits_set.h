// data.name: digits. No torch.
#pragma once
#include <trireme/data/data_options.h>
#include <trireme/data/dataset.h>

namespace trireme::data {

// Reads the file data.path, or digits.csv.gz in the folder data.path. Without data.path it reads
// the data set that ships with Trireme.
Dataset read_digits_set(const DataOptions& options);

}  // namespace trireme::data
