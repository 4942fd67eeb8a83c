// Tensors that lie in several safetensors files, as if they were in one. No torch.
#pragma once
#include <trireme/checkpoint/safetensors.h>
#include <filesystem>
#include <string>
#include <unordered_map>
#include <vector>

namespace trireme::checkpoint {

class SafetensorsFiles {
 public:
  // Throws as SafetensorsFile does, and Error(corrupt) for a tensor that is in two of them.
  explicit SafetensorsFiles(const std::vector<std::filesystem::path>& paths);
  const std::vector<TensorView>& tensors() const {
    return tensors_;
  }  // File by file, in the order of their bytes.
  const TensorView* find(const std::string& name) const;
  const std::vector<SafetensorsFile>& files() const {
    return files_;
  }  // In the order of the paths.

 private:
  std::vector<SafetensorsFile> files_;
  std::vector<TensorView> tensors_;
  std::unordered_map<std::string, size_t> by_name_;
};

}  // namespace trireme::checkpoint
