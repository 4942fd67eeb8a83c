// Whole tensors of several safetensors files, presented as one file.
#pragma once
#include <trireme/checkpoint/safetensors.h>
#include <filesystem>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

namespace trireme::checkpoint {

class SafetensorsFiles {
 public:
  // Stored tensors for which `is_slice` returns true do not appear: catalogue_of() has them.
  // Throws the errors of SafetensorsFile, and Error(corrupt) for a tensor that is in two of the
  // files.
  using IsSlice = std::function<bool(const std::string& file, const std::string& tensor)>;
  SafetensorsFiles(const std::vector<std::filesystem::path>& paths, const IsSlice& is_slice);
  // The tensors of all files, file by file, in the order of their bytes.
  const std::vector<TensorView>& tensors() const { return tensors_; }
  const TensorView* find(const std::string& name) const;
  // The files in the order of the paths.
  const std::vector<SafetensorsFile>& files() const { return files_; }

 private:
  std::vector<SafetensorsFile> files_;
  std::vector<TensorView> tensors_;
  std::unordered_map<std::string, size_t> by_name_;
};

}  // namespace trireme::checkpoint
