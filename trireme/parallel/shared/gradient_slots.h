// The places of one replica's gradients in memory that the other ranks of its host see. While
// backward runs, a tensor of exactly a parameter's size is allocated in a free slot of that size.
// Most gradients are thus written where the exchange reads them, without a copy. There is no
// guarantee: autograd may clone, or a temporary may take the slot. Therefore the exchange
// publishes every gradient, which copies those that lie elsewhere.
//
// From publish() to end_step() the other ranks may read a place. No tensor and no other gradient
// gets it in that time, even if the tensor in it is freed.
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

// One thread at a time uses it; any thread may free memory from here.
class GradientSlots : public AllocationSource {
 public:
  // `offsets` are the beginnings of the parameters' slots in `memory`, counted from `begin`, with
  // kBlockHeaderBytes free in front of each. `bytes` are their sizes (0 for none). From `spill` on
  // there is room for as much again, which is not reserved yet. It is for gradients whose slot is
  // taken by something else.
  GradientSlots(std::shared_ptr<net::SharedMemory> memory, size_t begin, size_t spill,
                std::vector<size_t> offsets, std::vector<size_t> bytes);

  void* try_allocate(size_t bytes) override;
  void give_back(void* data) override;
  // Returns the offset in the memory at which the other ranks find the gradient of parameter
  // `index`; `data` holds its `bytes` now. Each parameter gets its own place, even if two
  // gradients lie in the same memory. Throws Error(io) when there is no memory for a copy.
  size_t publish(int index, const void* data);
  // The same without a gradient: a place in which the other ranks may leave one.
  size_t publish_empty(int index);
  // Whether `data` is the beginning of a slot.
  bool has(const void* data) const { return slot_at(data).has_value(); }
  // Call it when no rank reads this step's published gradients any more.
  void end_step();

 private:
  std::optional<size_t> slot_at(const void* data) const;

  std::shared_ptr<net::SharedMemory> memory_;
  size_t begin_, spill_;
  std::vector<size_t> offsets_, bytes_;
  // By parameter: its part of the spill is reserved.
  std::vector<bool> spilled_;
  std::vector<bool> published_;                 // By slot: the other ranks may read it.
  std::unique_ptr<std::atomic<bool>[]> taken_;  // By slot: a tensor lies there.
  std::unordered_map<size_t, std::vector<size_t>> by_size_;
  std::unordered_map<size_t, size_t> slot_at_;  // The slots by offset.
};

}  // namespace trireme::shared
