// The head of the memory or file of a cache, and what it says of the file. No torch.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace trireme::data {

inline constexpr char kCacheMagic[16] = "trireme-cache-1";
inline constexpr uint64_t kCacheHeadBytes = 4096;
inline constexpr size_t kCacheKeyBytes = 64;

struct CacheHead {
  char magic[16];
  char key[kCacheKeyBytes];
  // The limit is the end of the space for samples, from the beginning.
  uint64_t samples;
  std::atomic<uint64_t> limit;
  std::atomic<uint64_t> next, stored;
  std::atomic<uint64_t> provided;  // Memory is there up to this byte.
  std::atomic<uint64_t> full;
};
static_assert(sizeof(std::atomic<uint64_t>) == sizeof(uint64_t));

}  // namespace trireme::data
