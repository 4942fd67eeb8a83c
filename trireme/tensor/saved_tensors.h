// The tensors that autograd saves in forward for backward, in the hands of the code around
// forward.
//
// LibTorch asks its autograd engine for hooks whenever an operation saves a tensor. Ours
// (autograd_engine.h) asks the keeper of the calling thread. Threads without a keeper pay one
// comparison for each saved tensor.
#pragma once
#include <ATen/core/Tensor.h>
#include <memory>
#include <string>

namespace trireme {

// A tensor that autograd saved. It lives as long as the graph that needs it. On CPU its functions
// run on the thread that calls backward.
class SavedTensor {
 public:
  virtual ~SavedTensor() = default;
  // Returns the values that were saved, outside of every graph. A graph that is retained asks
  // again.
  virtual at::Tensor get() = 0;
};

class SavedTensorKeeper {
 public:
  virtual ~SavedTensorKeeper() = default;
  // Called for each tensor that an operation of the thread saves, with autograd off. What it
  // returns may outlive the keeper. It must not hold `tensor` itself, because the graph would then
  // hold itself: tensor.tensor_data() has the same memory and the same version.
  virtual std::unique_ptr<SavedTensor> keep(const at::Tensor& tensor) = 0;
};

// While a scope lives, its keeper gets the tensors that the calling thread's operations save.
// Without a keeper (null), autograd keeps them itself. Scopes nest: the innermost one counts.
class SavedTensorScope {
 public:
  // Throws Error(unsupported) if the process has another engine.
  explicit SavedTensorScope(SavedTensorKeeper* keeper);
  ~SavedTensorScope();  // Runs on the thread that made the object.
  SavedTensorScope(const SavedTensorScope&) = delete;
  SavedTensorScope& operator=(const SavedTensorScope&) = delete;

 private:
  SavedTensorKeeper* previous_;
};

// While it lives, the backward that the calling thread runs is the first of two through one graph,
// each of which runs some operations (pipeline/split_backward.h). Tensors that it brings back into
// memory stay there until the graph lets go of them, so the second one need not bring them back
// again.
class FirstOfTwoBackwards {
 public:
  FirstOfTwoBackwards();
  ~FirstOfTwoBackwards();  // Runs on the thread that made the object.
  FirstOfTwoBackwards(const FirstOfTwoBackwards&) = delete;
  FirstOfTwoBackwards& operator=(const FirstOfTwoBackwards&) = delete;
  static bool is_running();
};

// The version of a tensor at one moment. Operations in place count it up. LibTorch does not
// compare versions where tensors have hooks, so keepers do.
class TensorVersion {
 public:
  explicit TensorVersion(const at::Tensor& tensor);
  bool has_moved() const;
  // Throws Error(invalid_argument) that names `place` if the tensor has been changed in place.
  void check(const std::string& place) const;

 private:
  c10::VariableVersion counter_;
  uint32_t version_;
};

// True for a leaf that collects a gradient, such as a parameter, and for a view of one.
bool is_parameter_or_view(const at::Tensor& tensor);

}  // namespace trireme
