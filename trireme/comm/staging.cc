#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <trireme/comm/staging.h>

namespace trireme::comm {
namespace {

at::Tensor values_of(const at::Tensor& tensor) {
  return tensor.requires_grad() ? tensor.detach() : tensor;
}

at::Tensor empty_copy(const at::Tensor& tensor, at::Device device) {
  const bool is_pinned = tensor.is_cuda() && device.is_cpu();
  return at::empty(tensor.sizes(),
                   at::TensorOptions(device).dtype(tensor.scalar_type()).pinned_memory(is_pinned));
}

class StagedWork : public Work {
 public:
  StagedWork(WorkPtr work, Staging staging)
      : work_(std::move(work)), staging_(std::move(staging)) {}
  void start() override { work_->start(); }
  void wait() override {
    work_->wait();
    staging_.bring_results();
  }
  bool wait_for(Milliseconds patience) override {
    if (!work_->wait_for(patience)) return false;
    staging_.bring_results();
    return true;
  }

 private:
  WorkPtr work_;
  Staging staging_;
};

}  // namespace

bool can_stage(at::Device tensor, at::Device group) {
  return tensor.type() != at::kMeta && (tensor.is_cpu() || group.is_cpu());
}

at::Tensor Staging::input(const at::Tensor& tensor) const {
  if (tensor.device() == device_) return values_of(tensor);
  const at::NoGradGuard no_grad;
  at::Tensor copy = empty_copy(tensor, device_);
  copy.copy_(tensor);
  return copy;
}

at::Tensor Staging::output(const at::Tensor& tensor) {
  if (tensor.device() == device_) return values_of(tensor);
  results_.emplace_back(values_of(tensor), empty_copy(tensor, device_));
  return results_.back().second;
}

at::Tensor Staging::in_place(const at::Tensor& tensor) {
  if (tensor.device() == device_) return values_of(tensor);
  results_.emplace_back(values_of(tensor), input(tensor));
  return results_.back().second;
}

WorkPtr Staging::with_results(WorkPtr work) {
  if (results_.empty()) return work;
  return std::make_unique<StagedWork>(std::move(work), std::move(*this));
}

void Staging::bring_results() {
  const at::NoGradGuard no_grad;
  for (const auto& [tensor, copy] : std::exchange(results_, {})) tensor.copy_(copy);
}

}  // namespace trireme::comm
