// Memory for the rows of a table: slots of equal size in slabs of about 2 MiB, which never move.
#pragma once
#include <trireme/parallel/servers/tables/row_index.h>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::servers {

// Used under one lock.
class RowSlabs {
 public:
  // A slot has `floats` values, and begins at a multiple of 16 bytes.
  explicit RowSlabs(int64_t floats);

  uint32_t take();  // A slot of any content.
  void give_back(uint32_t slot) { free_.push_back(slot); }
  float* at(uint32_t slot) const {
    return static_cast<float*>(slabs_[slot >> shift_].get()) +
           static_cast<size_t>(slot & mask_) * stride_;
  }
  size_t bytes_of_slot() const { return stride_ * sizeof(float); }

 private:
  size_t stride_;   // Floats from one slot to the next.
  uint32_t shift_;  // A slab has 2^shift_ slots.
  uint32_t mask_;
  uint32_t taken_ = 0;  // Slots that were ever taken.
  std::vector<Pages> slabs_;
  std::vector<uint32_t> free_;
};

}  // namespace trireme::servers
