// Gradients that all ranks have alike when another backward of the same step begins, and
// parameters that two engines have.
//
// By World::weigh() the weights of all ranks may add up to another number than 1, such as to N for
// a loss that is a sum. What has gone through the sum over the ranks must not go through it again,
// because it would be multiplied by that number. So what .grad has from the backwards before lies
// aside while backward runs, and is added behind the sum. Behind a backward under no_sync() it
// stays aside, and .grad has what only this rank knows: the other ranks need not have had such a
// backward. Of several engines that have a parameter, the first one adds its gradients up.
#pragma once
#include <ATen/core/Tensor.h>
#include <functional>
#include <memory>
#include <vector>

namespace trireme {

// The thread that calls backward uses it, or autograd's thread of a device meanwhile.
class CountedGradients {
 public:
  struct Callbacks {
    // Whether .grad has gradients that have counted, which must not go through the sum of the
    // backward that begins. If others lie aside already: whether they stay there.
    std::function<bool()> lie_aside;
    // Whether .grad has what only this rank knows, asked for when backward has ended.
    std::function<bool()> has_own_alone;
    std::function<bool()> is_quiet;  // Whether no_sync() is alive.
    // Throws: the loop has written .grad, to other values than 0, while others lay aside.
    std::function<void()> refuse_writes;
  };
  CountedGradients(std::vector<at::Tensor> parameters, Callbacks callbacks);
  ~CountedGradients();
  // From now on gradients lie aside in each backward of this thread, unless the process has an
  // autograd engine of its own (tensor/autograd_engine.h). Later calls do nothing.
  void begin();
  // Whether the backward under way began with gradients lying aside, if there were any.
  bool has_seen_backward() const;
  bool lie_there() const;  // Whether gradients lie aside.
  void forget();           // Drops the gradients that lie aside.
  // Multiplies the .grad of each parameter that no engine before this one has.
  void multiply(double factor);
  // Whether no_sync() is alive for one of two engines that have a parameter, and not for the
  // other.
  bool differs_in_quiet() const;
  // The parameters that an engine before this one has are without gradients as long as the result
  // lives.
  std::shared_ptr<void> leave_to_others();

 private:
  struct State;
  std::shared_ptr<State> state_;
  bool has_begun_ = false;
};

}  // namespace trireme
