#include <trireme/checkpoint/safetensors_files.h>

#include <fmt/format.h>
#include <trireme/base/error.h>

namespace trireme::checkpoint {

SafetensorsFiles::SafetensorsFiles(const std::vector<std::filesystem::path>& paths,
                                   const IsSlice& is_slice) {
  for (const auto& path : paths) {
    for (const TensorView& tensor : files_.emplace_back(path).tensors()) {
      if (is_slice(path.filename().string(), tensor.spec.name)) continue;
      if (!by_name_.emplace(tensor.spec.name, tensors_.size()).second)
        throw Error(
            ErrorCode::corrupt, "checkpoint",
            fmt::format("{} holds the tensor '{}', which another file of the checkpoint has too",
                        path.string(), tensor.spec.name),
            "an older checkpoint");
      tensors_.push_back(tensor);
    }
  }
}

const TensorView* SafetensorsFiles::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace trireme::checkpoint
