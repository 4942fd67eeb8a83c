// Runs a model's blocks so that their activations are where the decisions say. Output and
// gradients are those of model.forward; only compressed blocks change gradients a little.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/parallel/model.h>
#include <trireme/plan/memory_plan.h>
#include <trireme/tensor/activation_bytes.h>
#include <trireme/tensor/recompute.h>
#include <trireme/tensor/stored_tensors.h>
#include <trireme/tensor/swap_store.h>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

class ReplicaRandom;

// Used by the thread that computes. Graphs may outlive it.
class ActivationMemory {
 public:
  // Sets up what forward needs around a recomputation in backward, until the result is released.
  using Surroundings = RecomputedBlock::Surroundings;

  // A model without blocks counts as one, with the name "model". `random`: the thread's random
  // numbers, or null for those of LibTorch's default generator. They outlive all graphs.
  explicit ActivationMemory(const Model& model, ReplicaRandom* random = nullptr);
  // Some blocks of a model. `of_model`: the storages of the whole model's parameters and buffers.
  ActivationMemory(std::vector<Block> blocks, StorageSet of_model, ReplicaRandom* random);
  ~ActivationMemory();

  const std::vector<Block>& blocks() const { return blocks_; }
  // At the beginning every block is kept. Throws Error(invalid_argument) unless there is one
  // decision for each block, and Error(io) if the folder of swapped blocks cannot be used.
  // `operations`: those of a plan that is nested, else none. Only output_of(batch) follows them.
  void decide(const std::vector<plan::MemoryDecision>& decisions, const SwapOptions& swap,
              const std::vector<plan::MemoryOperation>& operations = {});
  const std::vector<plan::MemoryDecision>& decisions() const { return decisions_; }

  // Runs the blocks one after the other.
  at::Tensor output_of(const Batch& batch, const Surroundings& surroundings = {});
  // Runs one of the blocks. The batch is the one that the inputs were computed from.
  Tensors output_of(size_t block, const Tensors& inputs, const Batch& batch,
                    const Surroundings& surroundings = {});
  // Counts tensors while the result lives, but for those of the model and of the batch.
  using Holds = std::vector<ActivationBytes::Hold>;
  Holds hold(const Tensors& tensors, const Batch& batch) const;
  ActivationBytes::Hold hold(const c10::Storage& storage) const { return bytes_->hold(storage); }
  // Runs other code, such as the loss. It is kept, and counted.
  at::Tensor keep(const std::string& place, const Batch& batch,
                  const std::function<at::Tensor()>& compute);

  // The storages of the model's parameters and buffers.
  const StorageSet& of_model() const { return *of_model_; }
  // Counts the activations that are held in memory.
  const ActivationBytes& bytes() const { return *bytes_; }

 private:
  // `pass`: that of a nested plan, or null.
  Tensors run(size_t block, const Tensors& inputs, std::shared_ptr<const KeeperSetting> keeper,
              const Surroundings& surroundings, RecomputedPass* pass = nullptr);
  // For a run of a block, or of the code behind the last one.
  std::shared_ptr<const KeeperSetting> keeper(const std::string& place, size_t block,
                                              std::shared_ptr<const StorageSet> of_batch) const;

  std::vector<std::string> inputs_;
  std::vector<Block> blocks_;
  std::vector<plan::MemoryDecision> decisions_;
  std::vector<RecomputedBlock> recomputed_;
  struct Nested {
    std::vector<bool> keeps_inputs;                           // [block] In the first forward.
    std::shared_ptr<const std::vector<RecomputeStep>> steps;  // The steps after it.
  };
  Nested nested(const std::vector<plan::MemoryOperation>& operations) const;
  std::optional<Nested> nested_;  // Empty unless the plan is nested.
  std::shared_ptr<ActivationBytes> bytes_ = std::make_shared<ActivationBytes>();
  std::shared_ptr<const StorageSet> of_model_;
  struct Place {
    std::shared_ptr<StoragePlace> place;
    std::shared_ptr<StoredTensors::KnownStorages> known =
        std::make_shared<StoredTensors::KnownStorages>();
  };
  Place file_, small_;
  std::shared_ptr<SwapStore> swap_;  // That of file_.
};

}  // namespace trireme
