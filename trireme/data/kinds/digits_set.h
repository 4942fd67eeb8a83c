// data.name: digits. No torch.
#pragma once
#include <trireme/data/data_options.h>
#include <trireme/data/dataset.h>
#include <filesystem>

namespace trireme::data {

// Reads the file data.path, or digits.csv.gz in the folder data.path. Without data.path it reads
// the data set that ships with Trireme.
Dataset read_digits_set(const DataOptions& options);

// The digits data set that ships with Trireme: $TRIREME_DATA/digits.csv.gz, the source tree's
// data/, or the installed share/trireme/data/. Throws Error(not_found).
std::filesystem::path shipped_digits();

}  // namespace trireme::data
