// data.name: idx. No torch.
#pragma once
#include <trireme/data/data_options.h>
#include <trireme/data/dataset.h>
#include <filesystem>

namespace trireme::data {

void check_idx_set(const DataOptions& options);
Dataset read_idx_set(const DataOptions& options);

// A file that the configuration does not name is looked for in the folder data.path by its usual
// name: train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte,
// t10k-labels-idx1-ubyte; each also with .gz.
struct IdxFiles {
  std::filesystem::path images, labels;
  std::filesystem::path test_images, test_labels;  // Both empty if there is no test part.
};
// Throws Error(not_found) naming the folder and the file names if a named file or the training
// part does not exist.
IdxFiles find_idx_files(const DataOptions& data);

}  // namespace trireme::data
