// torch::optim's common optimizers, computed on ranges of parameters by one pass over memory. The
// torch::optim object stays the place of options (a schedule sets its learning rate there) and of
// state (checkpoints read it there); only its step() is not used.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/parallel/fused/kernels.h>
#include <trireme/parallel/module_state.h>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace trireme::fused {

// A range of one parameter, with pointers to its first element. The gradient is reduced and scaled
// already.
struct Range {
  int parameter = 0;
  int64_t from = 0, count = 0;
};

// One replica's view; one thread at a time. Parameters are known by their index in the list given
// to of().
class FusedOptimizer {
 public:
  // Null if the optimizer is none of SGD, Adam, AdamW, RMSprop, Adagrad, Lars and Lamb, or has a
  // parameter that is not contiguous float32 or float64, or is not in the list: then its own step()
  // is the way. The list may have parameters that the optimizer does not have.
  static std::unique_ptr<FusedOptimizer> of(torch::optim::Optimizer& optimizer,
                                            const std::vector<NamedTensor>& parameters);
  virtual ~FusedOptimizer() = default;

  // How many tensors of the parameter's shape its state has.
  virtual int state_tensors(int parameter) const = 0;
  // Keeps the state of `parameter` in `places` from now on: contiguous tensors of its shape and
  // type. What state there is gets copied if `copy` (one of the ranks that share the places does
  // it); else the places hold it already. New state is zero, also after state that is gone.
  virtual void place_state(int parameter, std::vector<at::Tensor> places, bool copy) = 0;
  // True while the state lies where place_state() put it: not after load_state(), which may also
  // have taken it away.
  virtual bool state_is_placed(int parameter) const = 0;

  // Once a step, before the ranges of these parameters: reads groups and options, counts the step.
  // Returns the parameters that are in a group of the optimizer; the others have no update. Throws
  // Error(unsupported) if the optimizer now needs state that had no place when the engine was made
  // (momentum that was 0, a parameter in a new group), or has a parameter that is not in the list.
  virtual std::vector<int> begin_step(const std::vector<int>& parameters) = 0;
  // The update of a range. Different ranges may be updated by different threads and processes that
  // share the memory.
  virtual void update(const Range& range, const void* gradient) = 0;

  // Whether a parameter's update depends on norms over the whole of it (Lars, Lamb). Then measure()
  // comes for all its ranges, and update() is given the sums.
  virtual bool layerwise() const { return false; }
  virtual Squares measure(const Range&, const void*) { return {}; }
  virtual void set_norms(int, const Squares&) {}
};

// The update of whole parameters of one replica by their own gradients: step() of the optimizer
// that it is of. Those of `candidates` (indices into `parameters`) without a gradient, or in no
// group of the optimizer, are left alone.
void update_alone(FusedOptimizer& optimizer, const std::vector<NamedTensor>& parameters,
                  std::span<const int> candidates);

}  // namespace trireme::fused
