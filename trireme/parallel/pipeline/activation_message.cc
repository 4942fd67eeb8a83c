#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <trireme/parallel/module_state.h>
#include <trireme/parallel/pipeline/activation_message.h>
#include <algorithm>

namespace trireme::pipeline {
namespace {

// A message begins with a letter of numbers: its tag in the plan, how many numbers follow, and for
// each tensor its type (or kNoTensor), whether its gradient is wanted, its dimensions and sizes. A
// list that is longer than a letter continues in a second one, so that usual messages have one.
constexpr int64_t kLetter = 64, kHead = 2;
constexpr int64_t kNoTensor = -1;

std::vector<int64_t> description_of(const std::vector<ActivationItem>& items) {
  std::vector<int64_t> numbers = {std::ssize(items)};
  for (const auto& [tensor, requires_grad] : items) {
    if (!tensor.defined()) {
      numbers.push_back(kNoTensor);
      continue;
    }
    numbers.push_back(static_cast<int64_t>(tensor.scalar_type()));
    numbers.push_back(requires_grad ? 1 : 0);
    numbers.push_back(tensor.dim());
    numbers.insert(numbers.end(), tensor.sizes().begin(), tensor.sizes().end());
  }
  return numbers;
}

// Makes the tensors that a description announces.
std::vector<ActivationItem> items_of(const std::vector<int64_t>& numbers) {
  size_t next = 0;
  std::vector<ActivationItem> items(static_cast<size_t>(numbers[next++]));
  for (auto& [tensor, requires_grad] : items) {
    const int64_t type = numbers[next++];
    if (type == kNoTensor) continue;
    requires_grad = numbers[next++] == 1;
    const auto dimensions = static_cast<size_t>(numbers[next++]);
    const at::IntArrayRef sizes(numbers.data() + next, dimensions);
    next += dimensions;
    tensor = at::empty(sizes, at::TensorOptions().dtype(static_cast<at::ScalarType>(type)));
  }
  return items;
}

at::Tensor letter(const int64_t* numbers, int64_t count) {
  at::Tensor tensor = at::empty({count}, at::kLong);
  std::copy_n(numbers, count, tensor.mutable_data_ptr<int64_t>());
  return tensor;
}

bool travels(const ActivationItem& item) {
  return item.tensor.defined() && item.tensor.numel() > 0;
}

}  // namespace

std::vector<at::Tensor> parts_of(const ActivationMessage& message) {
  const std::vector<int64_t> description = description_of(message.items);
  const int64_t count = std::ssize(description), first = std::min(count, kLetter - kHead);
  std::vector<int64_t> numbers = {message.tag, count};
  numbers.insert(numbers.end(), description.begin(), description.begin() + first);
  numbers.resize(kLetter);
  std::vector<at::Tensor> parts = {letter(numbers.data(), kLetter)};
  if (count > first) parts.push_back(letter(description.data() + first, count - first));
  for (const ActivationItem& item : message.items)
    if (travels(item)) parts.push_back(as_bytes(item.tensor.detach().contiguous()));
  return parts;
}

ActivationMessage receive_message(Group& stages, int from,
                                  const std::function<void(Work&)>& await) {
  const at::Tensor head = at::empty({kLetter}, at::kLong);
  await(*stages.recv_async(head, from));
  const int64_t* const numbers = head.const_data_ptr<int64_t>();
  const int64_t count = numbers[1], first = std::min(count, kLetter - kHead);
  std::vector<int64_t> description(numbers + kHead, numbers + kHead + first);
  if (count > first) {
    const at::Tensor rest = at::empty({count - first}, at::kLong);
    await(*stages.recv_async(rest, from));
    const int64_t* const more = rest.const_data_ptr<int64_t>();
    description.insert(description.end(), more, more + rest.numel());
  }
  ActivationMessage message{static_cast<int>(numbers[0]), items_of(description)};
  std::vector<WorkPtr> works;
  for (const ActivationItem& item : message.items)
    if (travels(item)) works.push_back(stages.recv_async(as_bytes(item.tensor), from));
  for (const WorkPtr& work : works) await(*work);
  return message;
}

}  // namespace trireme::pipeline
