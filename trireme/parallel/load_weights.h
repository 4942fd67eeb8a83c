// Weights from a file for a model: a pretrained backbone under a new head, or the file of another
// programme. The file is a checkpoint of Trireme, a .safetensors file, or a .pt of PyTorch or of
// torch::save.
//
//   trireme::load_weights(*model, "backbone.pt", {.rename = {{"^module\\.", ""}},
//                                                 .drop = {"^fc\\."},
//                                                 .allow_missing = {"^head\\."}});
#pragma once
#include <trireme/checkpoint/name_rules.h>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace trireme {

namespace checkpoint {
struct TensorFile;
}

// Regular expressions; see NameRules for `rename` and `drop`.
struct WeightsOptions {
  std::vector<std::pair<std::string, std::string>> rename = {};
  std::vector<std::string> drop = {};
  // The parameters and buffers of the model that the file may lack: they stay as they are.
  std::vector<std::string> allow_missing = {};
  // The tensors of the file that the model may lack, by their new names.
  std::vector<std::string> allow_unexpected = {};
};

// Names of the model; `unexpected`: new names of the file.
struct LoadedWeights {
  std::vector<std::string> loaded, missing, unexpected;
};

// Writes the tensors of the file into those of the model with their names. Floating-point types
// are converted to that of the model. A tied weight may have any of its names in the file. Call it
// on every rank before the model is given to Distributed, DataParallel or a Trainer; or on rank 0
// and then Distributed::sync() (DataParallel::sync_state()) on all. Throws Error(invalid_argument)
// before the first write, naming every tensor that is missing, unexpected, or has another shape
// or an incompatible type, and rules as renamed() does. Throws Error(not_found | io | corrupt |
// unsupported) as the formats do.
LoadedWeights load_weights(torch::nn::Module& module, const std::filesystem::path& path,
                           const WeightsOptions& options = {});

// The same for a factory of models that runs several times. A checkpoint or a .safetensors file is
// opened and verified once, and may be removed afterwards; in a DeferredModel only the tensors
// that get memory are read. A .pt is read as a whole each time, so that it does not stay in
// memory. Several threads may write from one file at the same time. Throws as load_weights() does.
class WeightsFile {
 public:
  WeightsFile(const std::filesystem::path& path, WeightsOptions options);
  ~WeightsFile();
  WeightsFile(const WeightsFile&) = delete;
  LoadedWeights write_to(torch::nn::Module& module) const;

 private:
  const std::filesystem::path path_;
  const WeightsOptions options_;
  std::unique_ptr<checkpoint::TensorFile> file_;  // Null for a .pt.
};

}  // namespace trireme
