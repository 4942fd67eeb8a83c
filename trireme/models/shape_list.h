// A list of parameters that a family of models fills. No torch.
#pragma once
#include <trireme/plan/tensor_spec.h>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace trireme::models {

// Appends tensors with their state_dict names, in the order in which torch's modules register
// them: the weight, then the bias.
class ShapeList {
 public:
  explicit ShapeList(plan::DType dtype) : dtype_(dtype) {}

  void add(std::string name, std::vector<int64_t> shape) {
    specs_.push_back({std::move(name), std::move(shape), dtype_, true});
  }
  void add_linear(const std::string& name, int64_t inputs, int64_t outputs) {
    add(name + ".weight", {outputs, inputs});
    add(name + ".bias", {outputs});
  }
  void add_norm(const std::string& name, int64_t features) {
    add(name + ".weight", {features});
    add(name + ".bias", {features});
  }
  std::vector<plan::TensorSpec> take() { return std::move(specs_); }

 private:
  plan::DType dtype_;
  std::vector<plan::TensorSpec> specs_;
};

}  // namespace trireme::models
