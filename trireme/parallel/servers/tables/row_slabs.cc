#include <trireme/parallel/servers/tables/row_slabs.h>

#include <algorithm>
#include <bit>

namespace trireme::servers {
namespace {

constexpr size_t kSlabBytes = size_t{2} << 20;
constexpr size_t kSlotUnit = 4;  // Floats: 16 bytes.

}  // namespace

RowSlabs::RowSlabs(int64_t floats)
    : stride_((static_cast<size_t>(floats) + kSlotUnit - 1) / kSlotUnit * kSlotUnit) {
  const size_t slots = std::max<size_t>(1, kSlabBytes / bytes_of_slot());
  shift_ = static_cast<uint32_t>(std::bit_width(slots) - 1);
  mask_ = (uint32_t{1} << shift_) - 1;
}

uint32_t RowSlabs::take() {
  if (!free_.empty()) {
    const uint32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  // A small table takes only the pages that it uses of its first slab.
  if (taken_ >> shift_ == slabs_.size())
    slabs_.push_back(take_pages(std::max(kSlabBytes, bytes_of_slot() << shift_),
                                /*in_large_pages=*/!slabs_.empty()));
  return taken_++;
}

}  // namespace trireme::servers
