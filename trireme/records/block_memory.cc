#include <trireme/records/block_memory.h>
#include <iterator>
#include <utility>

namespace trireme::records {

int64_t BlockMemory::limit() const {
  const std::lock_guard lock(mutex_);
  return limit_;
}

void BlockMemory::set_limit(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  limit_ = bytes;
  forget_old();
}

int64_t BlockMemory::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return kept_;
}

void BlockMemory::add_readers(int more) {
  const std::lock_guard lock(mutex_);
  readers_ += more;
}

bool BlockMemory::has_readers() const {
  const std::lock_guard lock(mutex_);
  return readers_ > 0;
}

BlockMemory::Place BlockMemory::add(Kept block) {
  blocks_.push_back(std::move(block));
  const Place place = std::prev(blocks_.end());
  use(place);
  return place;
}

void BlockMemory::use(Place block) {
  block->owner->newest = &*block;
  block->owner->used = ++uses_;
  if (std::next(block) != blocks_.end()) blocks_.splice(blocks_.end(), blocks_, block);
}

void BlockMemory::set_bytes(Place block, int64_t bytes) {
  kept_ += bytes - std::exchange(block->bytes, bytes);
  forget_old();
}

void BlockMemory::remove(Place block) {
  if (block->owner->newest == &*block) block->owner->newest = nullptr;
  kept_ -= block->bytes;
  blocks_.erase(block);
}

bool BlockMemory::must_stay(const Kept& block) const {
  if (block.bytes == 0) return true;  // It is being made, or takes no memory.
  return block.owner->newest == &block && uses_ - block.owner->used < kRecentUses;
}

void BlockMemory::forget_old() {
  for (auto each = blocks_.begin(); kept_ > limit_ && each != blocks_.end();) {
    const Place block = each++;
    if (must_stay(*block)) continue;
    // The block's place does not outlive the call.
    const std::function<void()> forget = std::move(block->forget);
    forget();
  }
}

}  // namespace trireme::records
