// One operation of LibTorch on hollow tensors: only the form of its results is computed, through
// LibTorch's own meta kernels.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <functional>
#include <optional>
#include <vector>

namespace trireme {

struct TensorArgument {
  at::Tensor tensor;
  bool written = false;
};
// All defined tensors among the operation's arguments, those in lists too.
std::vector<TensorArgument> tensor_arguments(const c10::OperatorHandle& operation,
                                             const torch::jit::Stack& stack);

// The tensors among the last `values` entries of the stack.
std::vector<at::Tensor> tensors_at_end(const torch::jit::Stack& stack, size_t values);

// Every tensor and every device among the arguments is the CPU's.
bool is_on_cpu(const c10::OperatorHandle& operation, const torch::jit::Stack& stack);
// The kernel only calls other operations, for which the dispatcher is asked again.
bool consists_of_others(const c10::OperatorHandle& operation);
// The operation changes or returns sizes, strides and storages, and no values.
bool only_makes_a_view(const c10::OperatorHandle& operation);
// The operation reads values and returns no tensor, such as item() or equal().
bool only_reads_values(const c10::OperatorHandle& operation);
// All tensors that the operation returns are its arguments, whose sizes it does not change.
bool is_in_place(const c10::OperatorHandle& operation);

// Bytes of the results that are no arguments. Unknown if LibTorch has no meta kernel for the
// operation. Throws as LibTorch does for wrong arguments.
std::optional<size_t> bytes_of_results(const c10::OperatorHandle& operation,
                                       const torch::jit::Stack& stack);

// Replaces the arguments on the stack by the operation's results. New tensors are hollow. Tensors
// that the operation writes are given to `hollow_out`.
void run_on_forms(const c10::OperatorHandle& operation, torch::jit::Stack* stack,
                  const std::function<void(const at::Tensor&)>& hollow_out);

}  // namespace trireme
