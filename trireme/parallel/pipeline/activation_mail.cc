#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <trireme/base/error.h>
#include <trireme/parallel/module_state.h>
#include <trireme/parallel/pipeline/activation_mail.h>
#include <algorithm>

namespace trireme {
namespace {

// A message begins with a letter of numbers: the micro-batch, how many numbers follow, and for
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

// Messages of one tag keep their order, so a tag for each part and direction is enough.
int ActivationMail::tag_of(const plan::PipelineMessage& message) const {
  constexpr int kTags = 256;
  return (2 * message.part + (message.is_gradient ? 1 : 0)) % kTags;
}

void ActivationMail::post(const at::Tensor& tensor, int to, int tag) {
  sent_.push_back({tensor, stages_->send_async(tensor, to, tag)});
  sent_.back().work->start();
}

void ActivationMail::drop_sent() {
  sent_.remove_if([](Sent& sent) { return sent.work->is_done(); });
}

void ActivationMail::send(const plan::PipelineMessage& message, const std::vector<Item>& items) {
  drop_sent();
  const int tag = tag_of(message);
  const std::vector<int64_t> description = description_of(items);
  const int64_t count = std::ssize(description), first = std::min(count, kLetter - kHead);
  std::vector<int64_t> numbers = {message.microbatch, count};
  numbers.insert(numbers.end(), description.begin(), description.begin() + first);
  numbers.resize(kLetter);
  post(letter(numbers.data(), kLetter), message.to, tag);
  if (count > first) post(letter(description.data() + first, count - first), message.to, tag);
  for (const auto& [tensor, requires_grad] : items)
    if (tensor.defined() && tensor.numel() > 0)
      post(as_bytes(tensor.detach().contiguous()), message.to, tag);
}

std::vector<ActivationMail::Item> ActivationMail::receive(const plan::PipelineMessage& message) {
  const Key wanted{message.is_gradient, message.part, message.microbatch};
  for (auto found = early_.find(wanted);; found = early_.find(wanted)) {
    if (found != early_.end()) {
      auto items = std::move(found->second);
      early_.erase(found);
      return items;
    }
    int microbatch = 0;
    auto items = receive_next(message, microbatch);
    if (microbatch == message.microbatch) return items;
    early_.emplace(Key{message.is_gradient, message.part, microbatch}, std::move(items));
  }
}

std::vector<ActivationMail::Item> ActivationMail::receive_next(const plan::PipelineMessage& like,
                                                               int& microbatch) {
  const int tag = tag_of(like);
  at::Tensor head = at::empty({kLetter}, at::kLong);
  stages_->recv(head, like.from, tag);
  const int64_t* const numbers = head.const_data_ptr<int64_t>();
  microbatch = static_cast<int>(numbers[0]);
  const int64_t count = numbers[1], first = std::min(count, kLetter - kHead);
  std::vector<int64_t> description(numbers + kHead, numbers + kHead + first);
  if (count > first) {
    at::Tensor rest = at::empty({count - first}, at::kLong);
    stages_->recv(rest, like.from, tag);
    const int64_t* const more = rest.const_data_ptr<int64_t>();
    description.insert(description.end(), more, more + rest.numel());
  }
  std::vector<Item> items = items_of(description);
  for (const auto& [tensor, requires_grad] : items)
    if (tensor.defined() && tensor.numel() > 0) stages_->recv(as_bytes(tensor), like.from, tag);
  return items;
}

void ActivationMail::finish() {
  for (Sent& sent : sent_) sent.work->wait();
  sent_.clear();
}

}  // namespace trireme
