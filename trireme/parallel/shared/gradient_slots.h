// Where one replica's gradients lie in memory that the other ranks of its host see. While backward
// runs, a tensor of exactly a parameter's size is allocated in a free slot of that size: most
// gradients are thus written where the exchange reads them, and nothing is copied. That is luck
// (autograd may clone, a temporary may be faster), so every gradient is looked for afterwards, and
// copied if it is elsewhere.
#pragma once
#include <trireme/net/shared_memory.h>
#include <trireme/tensor/cpu_allocator.h>
#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace trireme::shared {

// One thread at a time; what was allocated here may be freed by any thread.
class GradientSlots : public AllocationSource {
 public:
  // `offsets`: where each parameter's slot begins in `memory`, behind `begin`, with
  // kBlockHeaderBytes free in front of it; `bytes`: its size (0: none). Behind `spill` there is
  // room for the same again that is not reserved yet: for gradients whose slot is taken by
  // something else.
  GradientSlots(std::shared_ptr<net::SharedMemory> memory, size_t begin, size_t spill,
                std::vector<size_t> offsets, std::vector<size_t> bytes);

  void* try_allocate(size_t bytes) override;
  void give_back(void* data) override;
  // Offset in the memory at which the others find parameter `index`'s gradient; `data` holds
  // `bytes` of it now. Throws Error(io) when there is no memory for a copy.
  size_t publish(int index, const void* data);

 private:
  int slot_at(const void* data) const;

  std::shared_ptr<net::SharedMemory> memory_;
  size_t begin_, end_, spill_;
  std::vector<size_t> offsets_, bytes_;
  std::vector<bool> spilled_;                   // By parameter: its part of the spill is reserved.
  std::unique_ptr<std::atomic<bool>[]> taken_;  // By parameter.
  std::unordered_map<size_t, std::vector<int>> by_size_;
  std::unordered_map<size_t, int> slot_at_;  // By offset.
};

}  // namespace trireme::shared
