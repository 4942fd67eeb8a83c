// Random operations whose result nobody on this rank needs. The numbers that they would draw must
// be drawn all the same: the tensors that come after them get theirs from the same generator.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

namespace trireme {

bool draws_random_numbers(const c10::OperatorHandle& operation);
// Whether the operation fills its one tensor with random numbers and reads none of its values. It
// then draws the same amount of numbers whatever the tensor holds.
bool fills_with_random_numbers(const c10::OperatorHandle& operation);

// Draws what a filling operation with these arguments would draw, on scratch memory. uniform_ and
// normal_, which initialise nearly all parameters, need 1 MB at most. Another operation needs
// memory of its tensor's size, which is freed at once. `below` are the dispatch keys to run it
// with.
void draw_and_discard(const c10::OperatorHandle& operation, c10::DispatchKeySet below,
                      const torch::jit::Stack& arguments);

}  // namespace trireme
