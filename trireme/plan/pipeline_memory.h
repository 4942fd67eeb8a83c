// Predicts the activations that the stages of a pipeline hold, from the blocks of the model as
// they were measured one by one. The functions are pure.
#pragma once
#include <trireme/base/json.h>
#include <trireme/plan/memory_plan.h>
#include <trireme/plan/partition.h>
#include <trireme/plan/pipeline_plan.h>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme::plan {

// The tensors that autograd has saved in a block for one micro-batch.
struct SavedInBlock {
  std::vector<int> values;  // Those that go between blocks.
  int64_t inner_bytes = 0;  // All others.
  int64_t still_bytes = 0;  // The inner ones in storages that are too small to be moved.
};

struct MeasuredBlock {
  std::string name;
  double forward_seconds = 0, backward_seconds = 0;
  // Values, ascending, each once. A value that only passes through is in both.
  std::vector<int> inputs, outputs;
  bool needs_input_gradient = false;
  SavedInBlock saved;
  // Saved by the loss, if this is the last block. It is kept whatever happens to the block.
  SavedInBlock saved_by_loss;
  // The rest of it between the halves of a split backward, and the gradients that are kept
  // there (parallel/pipeline/split_backward.h). It counts if the input needs a gradient: otherwise
  // the whole backward is in the second half.
  SavedInBlock between_halves;
  // The bytes by which the first half, at its peak, exceeds those that are saved before it: the
  // gradients that are kept come before the tensors go that nobody needs any more.
  int64_t first_half_extra_bytes = 0;
};

// The blocks of a model with the tensors that go from block to block. Tensors that share memory
// are one value.
struct MeasuredChain {
  std::vector<int64_t> value_bytes;  // [value]; 0 for those of the batch and of the model.
  std::vector<MeasuredBlock> blocks;
  int64_t least_moved_bytes = 0;  // Smaller storages are not swapped or compressed.

  bool empty() const { return blocks.empty(); }
  int64_t bytes_of(const std::vector<int>& values) const;
  // The part that stays in memory if a block is swapped or compressed, and the bytes that do not.
  SavedInBlock not_moved(const SavedInBlock& saved) const;
  int64_t moved_bytes(const SavedInBlock& saved) const;
  Json to_json() const;
  static MeasuredChain from_json(const Json& json);
};

// The blocks [from, to) as a chain of its own.
std::vector<BlockMemory> memory_of(const MeasuredChain& chain, int from, int to);

// [part]: the most micro-batches between forward and the end of backward at a time.
std::vector<int> microbatches_held(const PipelinePlan& plan);

// [block]: the bytes that it adds to those of the blocks before it, for each micro-batch that is
// held, and those of its inputs that it does not add, which a part that begins with it holds too.
// `decisions` has one for each block; empty: all are kept.
struct ActivationCost {
  int64_t bytes = 0, entry_bytes = 0;
};
std::vector<ActivationCost> activation_costs(const MeasuredChain& chain,
                                             const std::vector<MemoryDecision>& decisions = {});

// The most bytes of activations that a stage holds at a time: saved tensors, and the inputs and
// outputs of its parts, which the runner holds. It runs the steps of the stage on paper. A block
// that is swapped is predicted to be away from its forward to its backward. The first half of a
// split backward brings back a block's activations, and those that the second half needs stay
// until then. `decisions`: as above.
int64_t peak_activations(const PipelinePlan& plan, const Partition& cut,
                         const MeasuredChain& chain, const std::vector<MemoryDecision>& decisions,
                         int stage);

}  // namespace trireme::plan
