// torch::optim's common optimizers, computed on ranges of parameters by one pass over memory. The
// torch::optim object still holds the options (a schedule sets its learning rate there) and the
// state (checkpoints read it there). Only its step() is not used.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/parallel/fused/kernels.h>
#include <trireme/parallel/module_state.h>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace trireme::fused {

// A range of one parameter. Pointers that come with it point to its first element, and the
// gradient is already reduced and scaled.
struct Range {
  int parameter = 0;
  int64_t from = 0, count = 0;
};

// One replica's view; one thread at a time uses it. A parameter is known by its index in the
// list given to of().
class FusedOptimizer {
 public:
  // Returns null, and the caller uses the optimizer's own step(), in three cases: the optimizer is
  // none of SGD, Adam, AdamW, RMSprop, Adagrad, Lars and Lamb; one of its parameters is not
  // contiguous float32 or float64; or one is not in the list. The list may have parameters that
  // the optimizer does not have.
  static std::unique_ptr<FusedOptimizer> of(torch::optim::Optimizer& optimizer,
                                            const std::vector<NamedTensor>& parameters);
  virtual ~FusedOptimizer() = default;

  // Whether a group of the optimizer had the parameter when the groups were last read: by of(), or
  // by begin_step().
  virtual bool has(int parameter) const = 0;
  // Whether the optimizer's groups have other parameters now than they had then.
  virtual bool has_new_groups() const = 0;

  // The number of tensors of the parameter's shape in its state.
  virtual int state_tensors(int parameter) const = 0;
  // Keeps the state of `parameter` in `places` from now on: contiguous tensors of its shape and
  // type. If `copy`, existing state is copied there; one of the ranks that share the places does
  // so. Otherwise the places already hold it. State that did not exist, or that was taken away,
  // starts at zero.
  virtual void place_state(int parameter, std::vector<at::Tensor> places, bool copy) = 0;
  // True while the state lies where place_state() put it. load_state() moves it elsewhere,
  // or takes it away.
  virtual bool state_is_placed(int parameter) const = 0;

  // Reads groups and options, and counts the step. Call it once a step, before the ranges of these
  // parameters. Returns the parameters that are in a group of the optimizer; the others have no
  // update. Throws Error(unsupported) if the optimizer now needs state that had no place when the
  // engine was made (momentum that was 0, a parameter in a new group), or has a parameter that is
  // not in the list.
  virtual std::vector<int> begin_step(const std::vector<int>& parameters) = 0;
  // Updates a range. Threads, and processes that share the memory, may update different ranges
  // at the same time.
  virtual void update(const Range& range, const void* gradient) = 0;

  // Whether a parameter's update depends on norms over the whole of it (Lars, Lamb). Then
  // measure() must run for all its ranges, and set_norms() gets the sums, before update().
  virtual bool layerwise() const { return false; }
  virtual Squares measure(const Range&, const void*) { return {}; }
  virtual void set_norms(int, const Squares&) {}
};

// Updates the whole of a parameter in a step that has begun, by its contiguous gradient. With
// `used` it goes piece by piece, and calls that after each.
void update_whole(FusedOptimizer& optimizer, int parameter, const at::Tensor& gradient,
                  const std::function<void(const Range&)>& used = {});

// Updates whole parameters of one replica by their own gradients, as the optimizer's own step()
// would. `candidates` are indices into `parameters`. Candidates without a gradient, or in no group
// of the optimizer, do not change. `used` is as above. Returns the number of elements that it
// updated.
int64_t update_alone(FusedOptimizer& optimizer, const std::vector<NamedTensor>& parameters,
                     std::span<const int> candidates,
                     const std::function<void(const Range&)>& used = {});

}  // namespace trireme::fused
