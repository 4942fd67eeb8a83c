#include <trireme/parallel/shared/gradient_slots.h>
#include <algorithm>
#include <cstring>

namespace trireme::shared {

GradientSlots::GradientSlots(std::shared_ptr<net::SharedMemory> memory, size_t begin, size_t spill,
                             std::vector<size_t> offsets, std::vector<size_t> bytes)
    : memory_(std::move(memory)),
      begin_(begin),
      end_(begin),
      spill_(spill),
      offsets_(std::move(offsets)),
      bytes_(std::move(bytes)),
      spilled_(bytes_.size(), false),
      taken_(std::make_unique<std::atomic<bool>[]>(bytes_.size())) {
  for (size_t i = 0; i < bytes_.size(); ++i) {
    end_ = std::max(end_, begin_ + offsets_[i] + bytes_[i]);
    if (bytes_[i] == 0) continue;
    by_size_[bytes_[i]].push_back(static_cast<int>(i));
    slot_at_[offsets_[i]] = static_cast<int>(i);
  }
}

void* GradientSlots::try_allocate(size_t bytes) {
  const auto found = by_size_.find(bytes);
  if (found == by_size_.end()) return nullptr;
  for (const int index : found->second)
    if (!taken_[static_cast<size_t>(index)].exchange(true, std::memory_order_acquire))
      return memory_->data() + begin_ + offsets_[static_cast<size_t>(index)];
  return nullptr;
}

void GradientSlots::give_back(void* data) {
  taken_[static_cast<size_t>(slot_at(data))].store(false, std::memory_order_release);
}

// The parameter whose slot begins there.
int GradientSlots::slot_at(const void* data) const {
  return slot_at_.at(static_cast<size_t>(static_cast<const std::byte*>(data) - memory_->data()) -
                     begin_);
}

size_t GradientSlots::publish(int index, const void* data) {
  const auto i = static_cast<size_t>(index);
  const auto* const bytes = static_cast<const std::byte*>(data);
  if (bytes >= memory_->data() + begin_ && bytes + bytes_[i] <= memory_->data() + end_)
    return static_cast<size_t>(bytes - memory_->data());
  size_t place = begin_ + offsets_[i];
  if (taken_[i].load(std::memory_order_acquire)) {
    place = spill_ + offsets_[i];
    if (!spilled_[i]) memory_->reserve(place, bytes_[i]);
    spilled_[i] = true;
  }
  std::memcpy(memory_->data() + place, data, bytes_[i]);
  return place;
}

}  // namespace trireme::shared
