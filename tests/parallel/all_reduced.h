// The simplest strategy of one's own: it computes what one device computes.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros_like.h>
#include <torch/optim/optimizer.h>

#include <trireme/parallel/replica_engine.h>

namespace trireme::tests {

// Adds up the gradients of all ranks, and every rank's optimizer updates its copy.
class AllReduced : public ReplicaEngine {
 public:
  using ReplicaEngine::ReplicaEngine;
  int updates = 0;

 protected:
  void exchange() override {
    for (const auto& [name, tensor] : parameters()) {
      if (!tensor.requires_grad()) continue;
      at::Tensor& gradient = tensor.mutable_grad();
      gradient = gradient.defined() ? gradient.contiguous() : at::zeros_like(tensor);
      group().all_reduce(gradient);
    }
  }
  void update() override {
    ++updates;
    optimizer().step();
  }
};

}  // namespace trireme::tests
