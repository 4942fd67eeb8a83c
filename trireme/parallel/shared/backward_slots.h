// Gradients in shared memory for loops that call loss.backward() themselves.
#pragma once
#include <trireme/parallel/shared/gradient_slots.h>
#include <memory>

namespace trireme::shared {

// As long as the slots are there, each backward() of this thread puts gradients into them where it
// can. Those of create_graph, which may be kept, lie in ordinary memory, and so do all gradients
// of a process with an autograd engine of its own (tensor/autograd_engine.h).
void offer_to_backward(const std::shared_ptr<GradientSlots>& slots);

}  // namespace trireme::shared
