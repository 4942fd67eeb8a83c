// An allocator that counts.
#pragma once
#include <trireme/tensor/cpu_allocator.h>
#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>

namespace trireme::tests {

// Counts the bytes of the tensors that are made under it (AllocationScope).
class CountingSource : public AllocationSource {
 public:
  void* try_allocate(size_t bytes) override {
    const size_t whole = (bytes + kBlockHeaderBytes + 63) / 64 * 64;
    auto* const block = static_cast<std::byte*>(std::aligned_alloc(64, whole));
    const std::lock_guard lock(mutex_);
    sizes_[block + kBlockHeaderBytes] = bytes;
    live_ += bytes;
    peak_ = std::max(peak_, live_);
    return block + kBlockHeaderBytes;
  }
  void give_back(void* data) override {
    const std::lock_guard lock(mutex_);
    live_ -= sizes_.at(data);
    sizes_.erase(data);
    std::free(static_cast<std::byte*>(data) - kBlockHeaderBytes);
  }
  size_t live() const { return live_; }
  size_t peak() const { return peak_; }

 private:
  std::mutex mutex_;
  std::map<void*, size_t> sizes_;
  size_t live_ = 0, peak_ = 0;
};

}  // namespace trireme::tests
