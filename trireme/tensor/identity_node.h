// A node of autograd that hands its gradient on. Nodes have another kind of pointer in LibTorch
// 2.11 than later.
#pragma once
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <memory>
#include <type_traits>

namespace trireme {

using NodePointer = decltype(torch::autograd::Edge::function);

template <typename Pointer = NodePointer>
Pointer make_identity_node() {
  using torch::autograd::Identity;
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<torch::autograd::Node>>)
    return std::make_shared<Identity>();
  else
    return c10::make_intrusive<Identity>();
}

}  // namespace trireme
