#include <trireme/checkpoint/tensor_file.h>

#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/checkpoint/input_file.h>

namespace trireme::checkpoint {

namespace fs = std::filesystem;

Saved open_saved(const fs::path& path) {
  if (path_exists(path / kManifestFile)) return open_checkpoint(path);
  if (has_checkpoints(path))
    if (auto saved = newest_in(path)) return std::move(*saved);
  throw Error(ErrorCode::not_found, "checkpoint", path.string() + " holds no checkpoint",
              "the folder given as checkpoint.dir, or one step-... folder in it");
}

TensorFile open_tensors(const fs::path& path) {
  TensorFile file;
  std::error_code ignored;  // A path that cannot be examined cannot be opened either.
  if (fs::is_directory(path, ignored)) {
    file.saved = open_saved(path);
    file.tensors = catalogue_of(*file.saved, kModelFile);
    file.aliases = file.saved->manifest.aliases;
    return file;
  }
  std::byte start[2] = {};
  const InputFile input(path);
  if (input.size() >= sizeof start) input.read(0, start);
  const bool is_zip = start[0] == std::byte{'P'} && start[1] == std::byte{'K'};
  const bool is_old_pickle = start[0] == std::byte{0x80};
  if (is_old_pickle)
    throw Error(ErrorCode::unsupported, "checkpoint",
                path.string() + " has PyTorch's format of before 1.6",
                "loading it in Python and torch.save(state_dict, path) once more");
  if (is_zip) {
    file.loaded = read_pytorch(path);
    for (const LoadedTensor& tensor : file.loaded) {
      file.order.push_back(tensor.spec.name);
      if (tensor.tied_to.empty())
        file.tensors.push_back(stored_whole(tensor.view()));
      else
        file.aliases[tensor.spec.name] = tensor.tied_to;
    }
  } else {
    file.safetensors = std::make_unique<SafetensorsFile>(path);
    for (const TensorView& tensor : file.safetensors->tensors())
      file.tensors.push_back(stored_whole(tensor));
  }
  return file;
}

std::vector<StoredTensor> all_tensors(const TensorFile& file) {
  std::map<std::string_view, const StoredTensor*> by_name;
  for (const StoredTensor& tensor : file.tensors) by_name[tensor.spec.name] = &tensor;
  std::vector<std::string> order = file.order;
  if (order.empty()) {
    for (const StoredTensor& tensor : file.tensors) order.push_back(tensor.spec.name);
    for (const auto& [alias, name] : file.aliases) order.push_back(alias);
  }
  std::vector<StoredTensor> all;
  for (const std::string& name : order) {
    const auto alias = file.aliases.find(name);
    const auto found = by_name.find(alias != file.aliases.end() ? alias->second : name);
    if (found == by_name.end()) continue;
    all.push_back(*found->second);
    all.back().spec.name = name;
  }
  return all;
}

}  // namespace trireme::checkpoint
