// Operations on tensors of another device than the group's: they run on copies of the tensors.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/comm/group.h>
#include <utility>
#include <vector>

namespace trireme::comm {

// Whether tensors of `tensor` can be staged for a group of `group`: one of the two is the host.
bool can_stage(at::Device tensor, at::Device group);

// The tensors of one operation. Copies between the host and CUDA use pinned memory, which
// LibTorch keeps for the next operation.
class Staging {
 public:
  explicit Staging(at::Device device) : device_(device) {}
  // The tensor without its graph: autograd neither records a collective nor forbids it on a leaf.
  // If it is on another device, this is a copy of it; for output() one without its values. What
  // the operation leaves in the copy of an output goes back into the tensor.
  at::Tensor input(const at::Tensor& tensor) const;
  at::Tensor output(const at::Tensor& tensor);
  at::Tensor in_place(const at::Tensor& tensor);
  // The operation on these tensors. It ends with the copies back, in the thread that waits.
  WorkPtr with_results(WorkPtr work);
  void bring_results();

 private:
  const at::Device device_;
  std::vector<std::pair<at::Tensor, at::Tensor>> results_;  // A tensor, and its copy.
};

}  // namespace trireme::comm
