// A part of forward that keeps its inputs alone. Backward runs it again and takes what autograd
// would have saved from that second run: Chen, Xu, Zhang, Guestrin 2016, "Training Deep Nets with
// Sublinear Memory Cost", section 3.
//
// The second run draws the same random numbers and computes under the same autocast. It gives the
// same bits, so the gradients are bit for bit those without recomputation. It leaves no trace:
// random numbers and buffers, such as running statistics, are afterwards as before.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/tensor/kept_tensors.h>
#include <functional>
#include <memory>
#include <vector>

namespace trireme {

class ReplicaRandom;
struct RepeatedBlock;

struct RecomputeSetting {
  // A function of its inputs, parameters, buffers and random numbers. It saves the same tensors in
  // the same order whenever these are the same.
  std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)> forward;
  // The buffers that forward may change.
  std::vector<at::Tensor> buffers;
  // The thread's random numbers; null: those of LibTorch's default CPU generator.
  ReplicaRandom* random = nullptr;
};

// Used by one thread. Its graphs may outlive it, but not the random numbers.
class RecomputedBlock {
 public:
  // Sets up what forward needs on the thread that runs it, until the result is released.
  using Surroundings = std::function<std::shared_ptr<void>()>;

  explicit RecomputedBlock(RecomputeSetting setting);

  // Runs forward. Under no_grad that is all. Inputs may have any memory; if forward changes one in
  // place, a copy is kept. `surroundings` is called before the second run.
  //
  // Backward throws Error(invalid_argument) that names the place if other code has changed an
  // input in place since, or if the second run saves other tensors than the first one. It lets
  // errors of forward through. After an error the next backward through the graph runs forward
  // again.
  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& inputs,
                                     std::shared_ptr<const KeeperSetting> keeper,
                                     const Surroundings& surroundings = {});

 private:
  friend class RecomputedPass;
  std::shared_ptr<RepeatedBlock> block_;
};

// Backward takes such steps through the blocks of a chain, in order.
struct RecomputeStep {
  enum class Kind {
    save,         // Runs forward again and takes what autograd saves.
    keep_inputs,  // Runs forward again for its outputs. Its inputs stay until its backward.
    pass,         // Runs forward again for its outputs.
    backward,     // The block's backward uses what `save` has taken.
  };
  Kind kind = Kind::save;
  size_t block = 0;
};

// One forward through a chain of blocks, of which some keep not even their inputs: backward makes
// them from the inputs of a block before. The steps of a persistent schedule: Beaumont et al.
// 2019, "Optimal checkpointing for heterogeneous chains", arXiv 1911.13214, section 4. Gradients
// are as RecomputedBlock's, and so are errors.
//
// The first of two backwards (FirstOfTwoBackwards) is only for passes of one block, such as those
// of RecomputedBlock. It runs forward again, once. Then the input goes, and each tensor stays
// until the graph lets go of it.
//
// The thread that runs forward makes the object; its graph holds it.
class RecomputedPass : public std::enable_shared_from_this<RecomputedPass> {
 public:
  // For a chain of so many blocks. The steps are those after forward; a block without steps, which
  // is kept with everything, is none of the pass's.
  RecomputedPass(size_t blocks, std::shared_ptr<const std::vector<RecomputeStep>> steps);
  ~RecomputedPass();

  // Runs the block at `place` of the chain forward. `keeps_inputs`: until its backward.
  std::vector<at::Tensor> run(size_t place, const RecomputedBlock& block,
                              const std::vector<at::Tensor>& inputs,
                              std::shared_ptr<const KeeperSetting> keeper,
                              const RecomputedBlock::Surroundings& surroundings,
                              bool keeps_inputs);

 private:
  class Saved;
  class Repetition;

  at::Tensor get(size_t place, size_t index);
  void forget(size_t place, size_t index);

  const std::unique_ptr<Repetition> repetition_;
};

}  // namespace trireme
