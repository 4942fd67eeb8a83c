// data.name: idx. No torch.
#pragma once
#include <trireme/data/data_kinds.h>
#include <trireme/data/data_options.h>
#include <trireme/data/dataset.h>
#include <filesystem>

namespace trireme::data {

inline constexpr const char* kIdx = "idx";  // Also the name of the format of records.

DataKind idx_kind();

// The keys of the files, before any file is read. Throws Error(invalid_argument).
void check_idx_files(const DataOptions& options);
// Files, and stages if there are any.
void check_idx_set(const DataOptions& options);
Dataset read_idx_set(const DataOptions& options);

struct IdxFiles {
  std::filesystem::path images, labels;
  std::filesystem::path test_images, test_labels;  // Both empty if there is no test part.
};
// data.path and data.test_path name a folder or a file of images. A file that the configuration
// does not name is looked for in the folder by its usual name: train-images-idx3-ubyte,
// train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte; each also with .gz. The
// labels of a file of images lie beside it, with labels-idx1 in the name for images-idx3. The
// folder data.path may lack the test part. Throws Error(not_found) naming the folder and the file
// names if a named file or the training part does not exist.
IdxFiles find_idx_files(const DataOptions& data);

}  // namespace trireme::data
