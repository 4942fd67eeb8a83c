// One rank's own parameters and optimizer state in files, where it shares neither with others: all
// that it has, or its part of a model.
#pragma once
#include <trireme/parallel/data_parallel_options.h>
#include <trireme/parallel/fused/fused_optimizer.h>
#include <trireme/parallel/memory_options.h>
#include <trireme/parallel/module_state.h>
#include <trireme/parallel/shared/gradient_files.h>
#include <trireme/parallel/shared/model_memory.h>
#include <trireme/plan/shared_layout.h>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace trireme {

OffloadOptions offload_of(const MemoryOptions& memory);

// Throws Error(invalid_argument) if the options name no folder, or if there is no `optimizer`
// whose state can be in files.
void check_offload(const OffloadOptions& offload, const fused::FusedOptimizer* optimizer);

struct OffloadedTensors {
  std::vector<NamedTensor> updated;  // What the optimizer updates, as it knows them.
  // [i]: the tensor that goes into the file: updated[i], or the whole of which that is a part in
  // the same memory. One that is not alone in its storage stays in memory.
  std::vector<NamedTensor> wholes;
  // The tensors whose gradients go into a file; none if gradients are in memory.
  std::vector<NamedTensor> gradients;
};

// Used by one thread. Tensors keep their storages, so views of them follow.
class OffloadedModel {
 public:
  // Moves the state, and with OffloadOptions::parameters also the other tensors, into files.
  // Unless it `watches_backward`, the caller says when a gradient is complete. `optimizer` is null
  // if it has no parameters, and outlives the object. Throws Error(io) if the folder cannot be
  // used or has too little space.
  OffloadedModel(OffloadedTensors tensors, fused::FusedOptimizer* optimizer,
                 const OffloadOptions& offload, bool watches_backward);

  // Null if gradients are in memory.
  shared::GradientFiles* gradients() { return gradients_ ? &*gradients_ : nullptr; }
  // Does what fused::update_alone() does, with the parameters of `updated`.
  int64_t update(std::span<const int> candidates);
  // The parts of update(), for a caller that updates in another way: the state is where it should
  // be; a range of an updated parameter and of its gradient was used; the update has ended.
  void begin_update();
  void used(const fused::Range& range);
  void end_update();

  // The whole of wholes[i] is about to be read. And: it was read or written, and is not needed
  // soon.
  void read_ahead(size_t i) const { memory_.read_ahead(i, bytes_of(i)); }
  void passed(size_t i) { memory_.passed(i, bytes_of(i)); }
  // Nothing is needed until the next use.
  void leave() { memory_.leave(); }
  std::vector<Block> paged(const std::vector<Block>& blocks) { return memory_.paged(blocks); }

 private:
  size_t bytes_of(size_t i) const { return tensors_.wholes[i].tensor.nbytes(); }
  void place_state();

  const OffloadedTensors tensors_;
  fused::FusedOptimizer* const optimizer_;
  const plan::SharedLayout layout_;
  shared::ModelMemory memory_;
  std::optional<shared::GradientFiles> gradients_;
};

}  // namespace trireme
