// The places into which rank 0 reads whole tensors of a checkpoint.
#pragma once
#include <trireme/checkpoint/load.h>
#include <trireme/parallel/state_view.h>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

// Throws Error(invalid_argument): the checkpoint does not fit the run.
[[noreturn]] void refuse_checkpoint(const std::string& what);

// True if a tensor of the model can be read from one that is stored in this type. Another type
// would be converted silently, and would lose what its type promises.
bool fits_model(const at::Tensor& tensor, plan::DType stored);

// The places for a checkpoint's tensors: the model's are read directly into the module, the others
// into new tensors.
class Places {
 public:
  explicit Places(const StateView& state) {
    for (const StateEntry& entry : state)
      if (is_of_model(entry.kind)) model_.push_back(entry);
  }

  // Throws Error(invalid_argument) that names the tensor if the model does not fit.
  std::vector<checkpoint::Destination> of(const checkpoint::Saved& saved);
  // Called once all bytes are in place.
  void settle();

  std::vector<NamedTensor> others;

 private:
  StateView model_;
  std::vector<std::pair<at::Tensor, at::Tensor>> detours_;
};

}  // namespace trireme
