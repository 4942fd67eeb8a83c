#include <ATen/core/enum_tag.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <trireme/tensor/skipped_draws.h>
#include <algorithm>
#include <set>
#include <string>

namespace trireme {
namespace {

constexpr int64_t kPieceElements = int64_t{1} << 16;
// normal_ draws for whole groups of this many elements of a contiguous tensor. If the size is not
// a multiple of it, the last group is drawn once more, so the last piece must hold a whole group.
constexpr int64_t kNormalGroup = 16;

// The generator stands at the same place after one call for all elements as after a call for each
// of these pieces. Both kernels go through the elements in order, on one thread, because the order
// of the numbers is part of what a seed means.
bool may_be_drawn_in_pieces(const c10::OperatorHandle& operation, const at::Tensor& tensor) {
  if (!tensor.is_floating_point()) return false;
  const std::string& name = operation.schema().name();
  return name == "aten::uniform_" || (name == "aten::normal_" && tensor.is_contiguous());
}

size_t tensor_argument(const c10::OperatorHandle& operation) {
  const auto& arguments = operation.schema().arguments();
  const auto found = std::ranges::find_if(arguments, [](const c10::Argument& argument) {
    return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  });
  return static_cast<size_t>(found - arguments.begin());
}

}  // namespace

bool draws_random_numbers(const c10::OperatorHandle& operation) {
  return operation.hasTag(at::Tag::nondeterministic_seeded) ||
         std::ranges::any_of(operation.schema().arguments(), [](const c10::Argument& argument) {
           return argument.name() == "generator";
         });
}

bool fills_with_random_numbers(const c10::OperatorHandle& operation) {
  static const std::set<std::string> fills{
      "aten::uniform_",   "aten::normal_",      "aten::random_",
      "aten::bernoulli_", "aten::exponential_", "aten::cauchy_",
      "aten::geometric_", "aten::log_normal_",  "aten::randperm"};
  const c10::FunctionSchema& schema = operation.schema();
  // bernoulli_ also has a form that reads its probabilities from a second tensor.
  const auto tensors = std::ranges::count_if(schema.arguments(), [](const c10::Argument& each) {
    return each.type()->isSubtypeOf(*c10::TensorType::get());
  });
  return tensors == 1 && schema.is_mutable() && fills.contains(schema.name());
}

void draw_and_discard(const c10::OperatorHandle& operation, c10::DispatchKeySet below,
                      const torch::jit::Stack& arguments) {
  const size_t place = tensor_argument(operation);
  const at::Tensor tensor = arguments[place].toTensor();
  const auto draw_into = [&](const at::Tensor& scratch) {
    torch::jit::Stack stack = arguments;
    stack[place] = scratch;
    operation.redispatchBoxed(below, &stack);
  };
  if (!may_be_drawn_in_pieces(operation, tensor)) {
    draw_into(at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options()));
    return;
  }
  int64_t left = tensor.numel();
  const at::Tensor scratch =
      at::empty({std::min(left, kPieceElements + kNormalGroup)}, tensor.options());
  for (; left >= kPieceElements + kNormalGroup; left -= kPieceElements)
    draw_into(scratch.narrow(0, 0, kPieceElements));
  if (left > 0) draw_into(scratch.narrow(0, 0, left));
}

}  // namespace trireme
