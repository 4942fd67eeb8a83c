// A replica's own parameters and optimizer state in files, where it shares neither with others.
#pragma once
#include <trireme/parallel/data_parallel_options.h>
#include <trireme/parallel/fused/fused_optimizer.h>
#include <trireme/parallel/module_state.h>
#include <trireme/parallel/shared/gradient_files.h>
#include <trireme/parallel/shared/model_memory.h>
#include <trireme/plan/shared_layout.h>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace trireme {

// Used by one thread. The arguments outlive the object.
class OffloadedModel {
 public:
  // Moves the state, and with OffloadOptions::parameters also the parameters, into files. If the
  // replica `is_alone`, its gradients follow the parameters. Throws Error(io) if the folder cannot
  // be used or has too little space.
  OffloadedModel(std::vector<NamedTensor>& parameters, fused::FusedOptimizer& optimizer,
                 const OffloadOptions& offload, bool is_alone);

  // Null if gradients are in memory.
  shared::GradientFiles* gradients() { return gradients_ ? &*gradients_ : nullptr; }
  // Does what fused::update_alone() does.
  int64_t update(std::span<const int> candidates);
  shared::ModelMemory& memory() { return memory_; }

 private:
  void place_state();

  std::vector<NamedTensor>& parameters_;
  fused::FusedOptimizer& optimizer_;
  const plan::SharedLayout layout_;
  shared::ModelMemory memory_;
  std::optional<shared::GradientFiles> gradients_;
};

}  // namespace trireme
