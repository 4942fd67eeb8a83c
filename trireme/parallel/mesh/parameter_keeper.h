// The seam between a stage, which computes gradients, and the way in which the replicas of its
// parameters stay the same: copies on every rank of the data axis, or shards.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/parallel/data_parallel_options.h>
#include <trireme/parallel/engine.h>
#include <trireme/plan/tensor_slice.h>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace trireme {

// A parameter or buffer of the model, as far as this rank computes with it.
struct OwnTensor {
  std::string name;  // In the whole model.
  at::Tensor tensor;
  // The boxes of the whole tensor that `tensor` consists of, one after another along its dimension
  // 0: one box, which is the whole tensor, unless layers are divided.
  std::vector<plan::TensorSlice> boxes;
  // True on one of the ranks of a replica that have the same values: it counts them in the global
  // norm and in the number of updated elements.
  bool counts = true;
  // Ranks outside the data axis have it as well: another stage, or another rank of the tensor
  // axis. If it is divided, they own the same rows of it.
  bool is_elsewhere = false;
};

// The tensors, without and with their names; or others in their place, with their names.
std::vector<at::Tensor> tensors_of(const std::vector<OwnTensor>& own);
std::vector<NamedTensor> named(const std::vector<OwnTensor>& own);
std::vector<NamedTensor> named(const std::vector<OwnTensor>& own,
                               const std::vector<at::Tensor>& tensors);

struct ParameterKeeperSetting {
  std::vector<OwnTensor> parameters;  // Trainable and frozen.
  std::shared_ptr<Group> replicas;    // The ranks that compute with the same parameters.
  OptimizerFactory optimizer;
  plan::BucketOptions buckets;
  OffloadOptions offload;     // Of the tensors of this rank.
  std::vector<Block> blocks;  // Those of this rank.
  // [block]: backward enters it, because it or a block before it, on any rank, has parameters that
  // are trained; and backward leaves it to the block before it, for the same reason.
  std::vector<bool> enters_backward, leaves_backward;
  // Gives these parameters memory and their initial values, the same on all replicas, and takes it
  // from all others that level 3 divides. COLLECTIVE along the data axis. Null if all parameters
  // have memory and values.
  std::function<void(const std::set<std::string>& names)> materialise;
};

// [block]: the indices of the parameters that it uses.
std::vector<std::vector<int>> parameters_by_block(const ParameterKeeperSetting& setting);

// The part of a backward that runs at a time: zero-bubble schedules divide it
// (pipeline/split_backward.h).
enum class BackwardPart { all, inputs, weights };

// Used by one thread. Between steps all keepers have the state of the same step.
class ParameterKeeper {
 public:
  virtual ~ParameterKeeper() = default;

  // The blocks of the setting as the stage runs them. They may fetch parameters before forward and
  // backward, and free them afterwards.
  virtual std::vector<Block> blocks() const = 0;
  // COLLECTIVE along the data axis with the forward and backward of other replicas. A replica that
  // has no sample in a micro-batch calls this instead of running blocks [first, last) of blocks().
  virtual void forward_without_samples(size_t first, size_t last) = 0;
  // COLLECTIVE along the data axis. They stand around the backward of a micro-batch through blocks
  // [first, last), or around each of its halves. A replica that has no sample in it calls both and
  // runs nothing between them. The keeper fetches parameters and reduces gradients meanwhile, in
  // an order that depends on the blocks alone. Gradients are left in each parameter's .grad.
  virtual void backward_begins(BackwardPart part, size_t first, size_t last) = 0;
  virtual void backward_ended() = 0;
  // The block in which backward is. And: the second half comes to the weights of this block.
  virtual size_t block_of_backward() const { return 0; }
  virtual void enter_weights(size_t) {}
  // COLLECTIVE along the data axis. Adds the gradients up over the replicas. A replica without a
  // gradient that others have contributes zeros.
  virtual void reduce() = 0;
  // The parameters or their masters, with the reduced gradients, as the optimizer updates them: of
  // a divided one this rank's rows. After reduce() the engine may add to these gradients.
  virtual std::vector<NamedTensor> updated() const = 0;
  // After reduce(): the squared L2 norm of the gradients that this rank counts, in float64. The
  // sum over all ranks is that of the whole gradient. NaN or infinite if a value is.
  virtual double squared_norm() = 0;
  // Multiplies the reduced gradients by `factor` and updates. Waits for no other rank, unless the
  // optimizer needs norms of whole layers (Lars, Lamb) that several ranks own: then it is
  // COLLECTIVE along the data axis, and a rank that is lost meanwhile leaves a state of no step.
  // Returns the elements that this rank updated and counts.
  virtual int64_t update(double factor) = 0;
  // COLLECTIVE along the data axis. Gives every replica the updated parameters that it needs.
  virtual void publish() = 0;
  // Forgets gradients, also those of a step that was abandoned.
  virtual void drop_gradients() = 0;

  // Adds the parameters that this rank has, with their slices, and the optimizer's tensors and
  // masters for them. The counter "optimizer" is for these parameters alone.
  virtual void show(EngineState& state) const = 0;
  // As Engine::begin_load() and end_load(), but for the model's values: parameters have them.
  // `incoming.tensors` have the forms of whole tensors, also of those that other ranks keep.
  virtual void begin_load(const IncomingState& incoming) = 0;
  virtual void end_load() = 0;
  virtual std::vector<double> rates() const = 0;
  virtual void set_rates(std::span<const double> rates) = 0;
};

// Every replica keeps all parameters of its stage and the optimizer's state for them.
std::unique_ptr<ParameterKeeper> keep_copies(ParameterKeeperSetting setting);

}  // namespace trireme
