// The data set that a configuration names. No torch.
#pragma once
#include <trireme/config/rows.h>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme::data {

struct DataOptions {
  std::string name = "digits";  // digits, idx, text, criteo, or one that was registered
  // One file or folder. For digits and criteo, empty means the one that ships with Trireme.
  std::string path;
  std::string images, labels, test_images, test_labels;  // idx
  std::string tokens = "characters";                     // text: characters, bytes
  int64_t block = 128;                                   // text: the number of tokens in a sample.
  int64_t classes = -1;                                  // -1: taken from the data.
  int64_t split_seed = 20260101;  // The seed of the held-out part; independent of train.seed.
  double test_fraction = 0.2;     // Used if the data has no test part of its own.
};
config::Rows rows_of(const DataOptions*);

// The names of the data sets that come with Trireme (data/data_kinds.h), and of those that were
// registered (run/training.h). Any thread.
std::vector<std::string> data_sets();

// Throws Error(invalid_argument) that names the option.
void check(const DataOptions& options);

}  // namespace trireme::data
