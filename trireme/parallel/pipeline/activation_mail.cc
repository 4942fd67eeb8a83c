#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <trireme/base/error.h>
#include <trireme/parallel/module_state.h>
#include <trireme/parallel/pipeline/activation_mail.h>
#include <algorithm>

namespace trireme {
namespace {

// A message begins with a letter of numbers: its tag in the plan, how many numbers follow, and for
// each tensor its type (or kNoTensor), whether its gradient is wanted, its dimensions and sizes. A
// list that is longer than a letter continues in a second one, so that usual messages have one.
constexpr int64_t kLetter = 64, kHead = 2;
constexpr int64_t kNoTensor = -1;

std::vector<int64_t> description_of(const std::vector<ActivationMail::Item>& items) {
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
std::vector<ActivationMail::Item> items_of(const std::vector<int64_t>& numbers) {
  size_t next = 0;
  std::vector<ActivationMail::Item> items(static_cast<size_t>(numbers[next++]));
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

}  // namespace

// Messages between two stages keep their order, and a letter says which one follows.
void ActivationMail::post(const at::Tensor& tensor, int to) {
  sent_.push_back({tensor, stages_->send_async(tensor, to)});
  sent_.back().work->start();
}

void ActivationMail::drop_sent() {
  sent_.remove_if([](Sent& sent) { return sent.work->is_done(); });
}

void ActivationMail::send(const plan::PipelineMessage& message, const std::vector<Item>& items) {
  drop_sent();
  const std::vector<int64_t> description = description_of(items);
  const int64_t count = std::ssize(description), first = std::min(count, kLetter - kHead);
  std::vector<int64_t> numbers = {plan_.tag_of(message), count};
  numbers.insert(numbers.end(), description.begin(), description.begin() + first);
  numbers.resize(kLetter);
  post(letter(numbers.data(), kLetter), message.to);
  if (count > first) post(letter(description.data() + first, count - first), message.to);
  for (const auto& [tensor, requires_grad] : items)
    if (tensor.defined() && tensor.numel() > 0)
      post(as_bytes(tensor.detach().contiguous()), message.to);
}

std::vector<ActivationMail::Item> ActivationMail::receive(const plan::PipelineMessage& message) {
  const int wanted = plan_.tag_of(message);
  for (auto found = early_.find(wanted);; found = early_.find(wanted)) {
    if (found != early_.end()) {
      auto items = std::move(found->second);
      early_.erase(found);
      return items;
    }
    int tag = 0;
    auto items = receive_next(message.from, tag);
    if (tag == wanted) return items;
    early_.emplace(tag, std::move(items));
  }
}

std::vector<ActivationMail::Item> ActivationMail::receive_next(int from, int& tag) {
  at::Tensor head = at::empty({kLetter}, at::kLong);
  stages_->recv(head, from);
  const int64_t* const numbers = head.const_data_ptr<int64_t>();
  tag = static_cast<int>(numbers[0]);
  const int64_t count = numbers[1], first = std::min(count, kLetter - kHead);
  std::vector<int64_t> description(numbers + kHead, numbers + kHead + first);
  if (count > first) {
    at::Tensor rest = at::empty({count - first}, at::kLong);
    stages_->recv(rest, from);
    const int64_t* const more = rest.const_data_ptr<int64_t>();
    description.insert(description.end(), more, more + rest.numel());
  }
  std::vector<Item> items = items_of(description);
  for (const auto& [tensor, requires_grad] : items)
    if (tensor.defined() && tensor.numel() > 0) stages_->recv(as_bytes(tensor), from);
  return items;
}

void ActivationMail::finish() {
  for (Sent& sent : sent_) sent.work->wait();
  sent_.clear();
}

}  // namespace trireme
