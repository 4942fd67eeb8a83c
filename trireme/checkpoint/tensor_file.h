// The tensors of whatever file or folder holds some: a checkpoint of ours, a safetensors file, a
// file of PyTorch. No torch.
#pragma once
#include <trireme/checkpoint/folder.h>
#include <trireme/checkpoint/pytorch_file.h>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trireme::checkpoint {

// `path` is one checkpoint, or a folder whose newest whole one is taken. Throws Error(not_found) if
// it is neither, or as they do.
Saved open_saved(const std::filesystem::path& path);

// A model's tensors; views point into it.
struct TensorFile {
  std::vector<TensorView> tensors;
  std::map<std::string, std::string> aliases;  // As in a Manifest.
  // What they point into.
  std::optional<Saved> saved;
  std::unique_ptr<SafetensorsFile> safetensors;
  std::vector<LoadedTensor> loaded;
};
// A folder: open_saved(). A file: by its first bytes. Throws Error(not_found | io | corrupt |
// unsupported).
TensorFile open_tensors(const std::filesystem::path& path);

// How two sets of tensors differ, one line each: missing in one, another shape or type, other
// values (with the largest difference of two elements; NaN differs from every number and from no
// NaN). Empty if they are equal.
std::vector<std::string> differences(const TensorFile& a, const TensorFile& b);

}  // namespace trireme::checkpoint
