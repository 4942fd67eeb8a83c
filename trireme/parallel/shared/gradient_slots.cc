#include <trireme/parallel/shared/gradient_slots.h>
#include <algorithm>
#include <cstring>

namespace trireme::shared {

GradientSlots::GradientSlots(std::shared_ptr<net::SharedMemory> memory, size_t begin, size_t spill,
                             std::vector<size_t> offsets, std::vector<size_t> bytes)
    : memory_(std::move(memory)),
      begin_(begin),
      spill_(spill),
      offsets_(std::move(offsets)),
      bytes_(std::move(bytes)),
      spilled_(bytes_.size(), false),
      published_(bytes_.size(), false),
      taken_(std::make_unique<std::atomic<bool>[]>(bytes_.size())) {
  for (size_t i = 0; i < bytes_.size(); ++i) {
    if (bytes_[i] == 0) continue;
    by_size_[bytes_[i]].push_back(i);
    slot_at_[offsets_[i]] = i;
  }
}

void* GradientSlots::try_allocate(size_t bytes) {
  const auto found = by_size_.find(bytes);
  if (found == by_size_.end()) return nullptr;
  for (const size_t slot : found->second)
    if (!published_[slot] && !taken_[slot].exchange(true, std::memory_order_acquire))
      return memory_->data() + begin_ + offsets_[slot];
  return nullptr;
}

void GradientSlots::give_back(void* data) {
  taken_[slot_at(data).value()].store(false, std::memory_order_release);
}

// The slot that begins at `data`, if there is one.
std::optional<size_t> GradientSlots::slot_at(const void* data) const {
  const auto place = static_cast<const std::byte*>(data) - memory_->data();
  const auto found = slot_at_.find(static_cast<size_t>(place) - begin_);
  return found == slot_at_.end() ? std::nullopt : std::optional(found->second);
}

size_t GradientSlots::publish(int index, const void* data) {
  const auto i = static_cast<size_t>(index);
  if (const auto slot = slot_at(data); slot && bytes_[*slot] >= bytes_[i] && !published_[*slot]) {
    published_[*slot] = true;
    return begin_ + offsets_[*slot];
  }
  const size_t place = publish_empty(index);
  std::memcpy(memory_->data() + place, data, bytes_[i]);
  return place;
}

size_t GradientSlots::publish_empty(int index) {
  const auto i = static_cast<size_t>(index);
  if (!published_[i] && !taken_[i].load(std::memory_order_acquire)) {
    published_[i] = true;
    return begin_ + offsets_[i];
  }
  const size_t place = spill_ + offsets_[i];
  if (!spilled_[i]) memory_->reserve(place, bytes_[i]);
  spilled_[i] = true;
  return place;
}

void GradientSlots::end_step() { published_.assign(published_.size(), false); }

}  // namespace trireme::shared
