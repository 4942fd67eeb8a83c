// The tensors of any supported file or folder: a checkpoint of Trireme, a safetensors file, or a
// file of PyTorch.
#pragma once
#include <trireme/checkpoint/catalogue.h>
#include <trireme/checkpoint/folder.h>
#include <trireme/checkpoint/pytorch_file.h>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trireme::checkpoint {

// Opens a checkpoint, or the newest whole checkpoint of a folder. Throws Error(not_found) if
// `path` is neither, and the errors of open_checkpoint() and newest_in().
Saved open_saved(const std::filesystem::path& path);

// A model's tensors. Their parts point into the other members.
struct TensorFile {
  std::vector<StoredTensor> tensors;
  // Tied weights, as in Manifest.
  std::map<std::string, std::string> aliases;
  // All names in the file's order, aliases too; empty: tensors, then aliases.
  std::vector<std::string> order;
  // The owners of the bytes.
  std::optional<Saved> saved;
  std::unique_ptr<SafetensorsFile> safetensors;
  std::vector<LoadedTensor> loaded;
};
// Opens a folder with open_saved(), and a file by its first bytes. Throws Error(not_found | io |
// corrupt | unsupported).
TensorFile open_tensors(const std::filesystem::path& path);

// The tensors under all names, aliases too, in order. Their parts point into the file.
std::vector<StoredTensor> all_tensors(const TensorFile& file);

// Returns the differences between two sets of tensors, one line for each: a tensor that is
// missing in one, another shape or type, or other values. For values the line has the
// largest difference between two elements; NaN differs from every number but not from NaN. How
// the tensors are cut into slices does not count.
// Tied weights are compared under each of their names. Empty if the sets are equal.
std::vector<std::string> differences(const TensorFile& a, const TensorFile& b);

}  // namespace trireme::checkpoint
