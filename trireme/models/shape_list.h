// A list of parameters that a family of models fills. No torch.
#pragma once
#include <trireme/models/shapes.h>
#include <trireme/plan/tensor_spec.h>
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace trireme::models {

// Appends tensors with their state_dict names, in the order in which torch's modules register
// them: the weight, then the bias. They belong to the block that was begun last, so a family
// begins its first block before it adds a tensor.
class ShapeList {
 public:
  explicit ShapeList(plan::DType dtype) : dtype_(dtype) {}

  // `name` is that of the module's block (Model::blocks).
  void begin_block(std::string name) { blocks_.push_back({.name = std::move(name)}); }
  void add(std::string name, std::vector<int64_t> shape) {
    specs_.push_back({std::move(name), std::move(shape), dtype_, true});
    add_to_block(specs_.back());
  }
  void add_linear(const std::string& name, int64_t inputs, int64_t outputs) {
    add(name + ".weight", {outputs, inputs});
    add(name + ".bias", {outputs});
  }
  void add_norm(const std::string& name, int64_t features) {
    add(name + ".weight", {features});
    add(name + ".bias", {features});
  }
  // The current block has a tensor of an earlier one too.
  void add_tied(const std::string& name) {
    add_to_block(*std::ranges::find(specs_, name, &plan::TensorSpec::name));
  }
  std::vector<plan::TensorSpec> take() { return std::move(specs_); }
  std::vector<BlockSize> take_blocks() { return std::move(blocks_); }

 private:
  void add_to_block(const plan::TensorSpec& spec) {
    blocks_.back().elements += spec.elements();
    blocks_.back().parameters.push_back(spec.name);
  }

  plan::DType dtype_;
  std::vector<plan::TensorSpec> specs_;
  std::vector<BlockSize> blocks_;
};

}  // namespace trireme::models
