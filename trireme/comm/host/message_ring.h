// A ring of bytes in shared memory, with one writer and one reader; no torch.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace trireme::comm {

// Plain memory that is zero at the start. Its address is a multiple of 64.
class MessageRing {
 public:
  static constexpr size_t kBytes = 32 << 10;

  // Moves at most `count` bytes: as many as there is room for, or as many as are there. Returns
  // the number of bytes.
  size_t write(const std::byte* from, size_t count) {
    const uint64_t position = written_.load(std::memory_order_relaxed);
    count = std::min(count, kBytes - (position - read_.load(std::memory_order_acquire)));
    if (count == 0) return 0;
    const auto [at, first] = split(position, count);
    copy(bytes_.data() + at, from, first);
    copy(bytes_.data(), from + first, count - first);
    written_.store(position + count, std::memory_order_release);
    return count;
  }
  size_t read(std::byte* to, size_t count) {
    const uint64_t position = read_.load(std::memory_order_relaxed);
    count = std::min(count, written_.load(std::memory_order_acquire) - position);
    if (count == 0) return 0;  // The writer's core keeps the cache line.
    const auto [at, first] = split(position, count);
    copy(to, bytes_.data() + at, first);
    copy(to + first, bytes_.data(), count - first);
    read_.store(position + count, std::memory_order_release);
    return count;
  }

 private:
  // The place of a range in the ring, and its length up to the ring's end.
  static std::pair<size_t, size_t> split(uint64_t position, size_t count) {
    const size_t at = position % kBytes;
    return {at, std::min(count, kBytes - at)};
  }
  static void copy(std::byte* to, const std::byte* from, size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

  // Positions only grow; a byte lies at position % kBytes.
  alignas(64) std::atomic<uint64_t> written_;
  alignas(64) std::atomic<uint64_t> read_;
  alignas(64) std::array<std::byte, kBytes> bytes_;
};

}  // namespace trireme::comm
