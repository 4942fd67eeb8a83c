// Where one replica's gradients lie in memory that the other ranks of its host see. While backward
// runs, a tensor of exactly a parameter's size is allocated in a free slot of that size: most
// gradients are thus written where the exchange reads them, and nothing is copied. That is luck
// (autograd may clone, a temporary may be faster), so the exchange publishes every gradient, which
// copies the ones that lie elsewhere.
//
// From publish() to end_step() the other ranks may read a place: no tensor and no other gradient
// gets it, also when the tensor that was there is freed.
#pragma once
#include <trireme/net/shared_memory.h>
#include <trireme/tensor/cpu_allocator.h>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
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
  // `bytes` of it now. Each parameter gets a place of its own, also where two gradients lie in the
  // same memory. Throws Error(io) when there is no memory for a copy.
  size_t publish(int index, const void* data);
  // Nobody reads what was published in this step any more.
  void end_step();

 private:
  std::optional<size_t> slot_at(const void* data) const;

  std::shared_ptr<net::SharedMemory> memory_;
  size_t begin_, spill_;
  std::vector<size_t> offsets_, bytes_;
  std::vector<bool> spilled_;                   // By parameter: its part of the spill is reserved.
  std::vector<bool> published_;                 // By slot: the others may read it.
  std::unique_ptr<std::atomic<bool>[]> taken_;  // By slot: a tensor lies there.
  std::unordered_map<size_t, std::vector<size_t>> by_size_;
  std::unordered_map<size_t, size_t> slot_at_;  // By offset.
};

}  // namespace trireme::shared
