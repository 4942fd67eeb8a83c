// The folders and files of a run. No torch.
#pragma once
#include <trireme/run/config.h>
#include <filesystem>
#include <string>

namespace trireme {

// The path of a programme in the folder of this programme. Throws Error(not_found).
std::filesystem::path sibling_program(const std::string& name);
// The digits data set that ships with Trireme: $TRIREME_DATA/digits.csv.gz, the source tree's
// data/, or the installed share/trireme/data/. Throws Error(not_found).
std::filesystem::path shipped_digits();

// run.dir, or a new folder named after data and time ("runs/digits-20260131-101500").
std::string make_run_dir(const Config& config);
std::string checkpoint_dir(const Config& config);  // checkpoint.dir, or run.dir/checkpoint.
// The folder in it that records the injected faults that have struck (faults/injector.h).
std::filesystem::path marks_dir(const std::filesystem::path& checkpoint_dir);

// The files of data.name: idx. A file that the configuration does not name is looked for in the
// folder data.path by its usual name: train-images-idx3-ubyte, train-labels-idx1-ubyte,
// t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte; each also with .gz.
struct IdxFiles {
  std::filesystem::path images, labels;
  std::filesystem::path test_images, test_labels;  // Both empty if there is no test part.
};
// Throws Error(not_found) naming the folder and the file names if a named file or the training
// part does not exist.
IdxFiles find_idx_files(const data::DataOptions& data);

}  // namespace trireme
