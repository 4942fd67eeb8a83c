#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <trireme/tensor/thread_state.h>
#include <mutex>

namespace trireme {
namespace {

constexpr std::array<at::DeviceType, 2> kAutocastDevices = {at::kCPU, at::kCUDA};

ReplicaRandom::Mark mark_of(const ReplicaRandom* random) {
  if (random != nullptr) return random->mark();
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

}  // namespace

ThreadState::ThreadState(ReplicaRandom* random, std::vector<at::Tensor> buffers)
    : random_(random),
      mark_(mark_of(random)),
      autocast_caches_(at::autocast::is_autocast_cache_enabled()),
      buffers_(std::move(buffers)) {
  for (size_t i = 0; i < kAutocastDevices.size(); ++i)
    autocast_[i] = {at::autocast::is_autocast_enabled(kAutocastDevices[i]),
                    at::autocast::get_autocast_dtype(kAutocastDevices[i])};
  const at::NoGradGuard no_grad;
  for (const at::Tensor& buffer : buffers_) copies_.push_back(buffer.detach().clone());
}

void ThreadState::forget_what_stayed() {
  std::vector<at::Tensor> buffers, copies;
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (buffers_[i].equal(copies_[i])) continue;
    buffers.push_back(buffers_[i]);
    copies.push_back(copies_[i]);
  }
  buffers_ = std::move(buffers);
  copies_ = std::move(copies);
}

void ThreadState::restore() const {
  if (random_ != nullptr) {
    random_->restore(mark_);
  } else {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    generator.set_state(mark_);
  }
  for (size_t i = 0; i < kAutocastDevices.size(); ++i) {
    at::autocast::set_autocast_enabled(kAutocastDevices[i], autocast_[i].is_enabled);
    at::autocast::set_autocast_dtype(kAutocastDevices[i], autocast_[i].dtype);
  }
  at::autocast::set_autocast_cache_enabled(autocast_caches_);
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < buffers_.size(); ++i) buffers_[i].variable_data().copy_(copies_[i]);
}

ThreadStateAgain::ThreadStateAgain(const ThreadState& before)
    : now_(before.random_, before.buffers_) {
  before.restore();
}
ThreadStateAgain::~ThreadStateAgain() { now_.restore(); }

}  // namespace trireme
