#include <trireme/parallel/shared/gradient_slots.h>
#include <atomic>
#include <cstring>

namespace trireme::shared {

struct GradientSlots::Slot {
  std::byte* data;
  std::shared_ptr<net::SharedMemory> memory;  // Lives as long as a tensor does here.
  std::atomic<bool> taken{false};
};

GradientSlots::GradientSlots(std::shared_ptr<net::SharedMemory> memory, size_t begin, size_t spill, std::vector<size_t> offsets,
                             std::vector<size_t> bytes)
    : memory_(std::move(memory)),
      begin_(begin),
      end_(begin),
      spill_(spill),
      offsets_(std::move(offsets)),
      bytes_(std::move(bytes)),
      spilled_(bytes_.size(), false) {
  for (size_t i = 0; i < bytes_.size(); ++i) {
    auto slot = std::make_shared<Slot>();
    slot->data = memory_->data() + begin_ + offsets_[i];
    slot->memory = memory_;
    slots_.push_back(std::move(slot));
    end_ = std::max(end_, begin_ + offsets_[i] + bytes_[i]);
    if (bytes_[i] > 0) by_size_[bytes_[i]].push_back(static_cast<int>(i));
  }
}

c10::DataPtr GradientSlots::try_allocate(size_t bytes) {
  const auto found = by_size_.find(bytes);
  if (found == by_size_.end()) return {};
  for (const int index : found->second) {
    Slot& slot = *slots_[static_cast<size_t>(index)];
    if (slot.taken.exchange(true, std::memory_order_acquire)) continue;
    auto* const holder = new std::shared_ptr<Slot>(slots_[static_cast<size_t>(index)]);
    const auto free = [](void* context) {
      const std::unique_ptr<std::shared_ptr<Slot>> held(static_cast<std::shared_ptr<Slot>*>(context));
      (*held)->taken.store(false, std::memory_order_release);
    };
    return {slot.data, holder, free, c10::Device(c10::DeviceType::CPU)};
  }
  return {};
}

size_t GradientSlots::publish(int index, const void* data) {
  const auto i = static_cast<size_t>(index);
  const auto* const bytes = static_cast<const std::byte*>(data);
  if (bytes >= memory_->data() + begin_ && bytes + bytes_[i] <= memory_->data() + end_) return static_cast<size_t>(bytes - memory_->data());
  size_t place = begin_ + offsets_[i];
  if (slots_[i]->taken.load(std::memory_order_acquire)) {
    place = spill_ + offsets_[i];
    if (!spilled_[i]) memory_->reserve(place, bytes_[i]);
    spilled_[i] = true;
  }
  std::memcpy(memory_->data() + place, data, bytes_[i]);
  return place;
}

}  // namespace trireme::shared
