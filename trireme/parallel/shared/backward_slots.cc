#include <trireme/parallel/shared/backward_slots.h>
#include <trireme/tensor/autograd_engine.h>
#include <utility>
#include <vector>

namespace trireme::shared {
namespace {

// The slots of several engines, such as those of the two models of a GAN.
class SeveralSlots : public AllocationSource {
 public:
  explicit SeveralSlots(std::vector<std::shared_ptr<GradientSlots>> slots)
      : slots_(std::move(slots)) {}
  void* try_allocate(size_t bytes) override {
    for (const auto& each : slots_)
      if (void* const data = each->try_allocate(bytes)) return data;
    return nullptr;
  }
  void give_back(void* data) override {
    for (const auto& each : slots_)
      if (each->has(data)) return each->give_back(data);
  }

 private:
  const std::vector<std::shared_ptr<GradientSlots>> slots_;
};

thread_local std::vector<std::weak_ptr<GradientSlots>> slots_of_this_thread;

// Null if this thread has no slots.
std::shared_ptr<AllocationSource> source_of_this_thread() {
  std::erase_if(slots_of_this_thread, [](const auto& slots) { return slots.expired(); });
  std::vector<std::shared_ptr<GradientSlots>> slots;
  for (const auto& each : slots_of_this_thread)
    if (auto found = each.lock()) slots.push_back(std::move(found));
  if (slots.empty()) {
    threads_autograd().gradient_memory = nullptr;
    return nullptr;
  }
  if (slots.size() == 1) return slots.front();
  return std::make_shared<SeveralSlots>(std::move(slots));
}

}  // namespace

void offer_to_backward(const std::shared_ptr<GradientSlots>& slots) {
  if (!install_autograd_engine()) return;
  slots_of_this_thread.push_back(slots);
  threads_autograd().gradient_memory = &source_of_this_thread;
}

}  // namespace trireme::shared
