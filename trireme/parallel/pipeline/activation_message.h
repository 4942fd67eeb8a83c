// The form of a message between stages: one or two letters of numbers, and then the tensors.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/comm/group.h>
#include <functional>
#include <vector>

namespace trireme::pipeline {

struct ActivationItem {
  at::Tensor tensor;           // Undefined: there is no gradient.
  bool requires_grad = false;  // The sender wants a gradient of it.
};

struct ActivationMessage {
  int tag = 0;  // The one that the plan gives it.
  std::vector<ActivationItem> items;
};

// The tensors that travel for a message, in their order.
std::vector<at::Tensor> parts_of(const ActivationMessage& message);

// Receives the next message that the stage `from` sends. `await` waits for each receive.
ActivationMessage receive_message(Group& stages, int from,
                                  const std::function<void(Work&)>& await);

}  // namespace trireme::pipeline
