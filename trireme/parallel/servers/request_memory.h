// Memory for the tensors of requests, which is used again and again.
#pragma once
#include <trireme/net/requests/request_server.h>
#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace trireme::servers {

inline constexpr size_t kMemoryLine = 64;
inline size_t lines_of(uint64_t bytes) { return (bytes + kMemoryLine - 1) / kMemoryLine; }

struct alignas(kMemoryLine) MemoryLine {
  std::byte bytes[kMemoryLine];
};

// Any thread.
class RequestMemory : public std::enable_shared_from_this<RequestMemory> {
 public:
  using Block = std::unique_ptr<MemoryLine[]>;

  net::Placement place(const std::vector<net::TensorNote>& notes) {
    size_t lines = 0;
    for (const net::TensorNote& note : notes) lines += lines_of(note.bytes);
    auto taken = take(lines);
    std::byte* at = taken->first[0].bytes;
    net::Placement placement;
    for (const net::TensorNote& note : notes) {
      placement.places.emplace_back(at, note.bytes);
      at += lines_of(note.bytes) * kMemoryLine;
    }
    placement.owner = std::move(taken);
    return placement;
  }

 private:
  using Sized = std::pair<Block, size_t>;
  std::shared_ptr<Sized> take(size_t lines) {
    const std::lock_guard lock(mutex_);
    const auto found =
        std::ranges::find_if(free_, [&](const Sized& block) { return block.second >= lines; });
    Sized block;
    if (found != free_.end()) {
      block = std::move(*found);
      free_.erase(found);
    } else {
      free_.clear();  // Blocks of another size are of no use.
      block = {std::make_unique_for_overwrite<MemoryLine[]>(std::max<size_t>(1, lines)), lines};
    }
    return {new Sized(std::move(block)), [all = weak_from_this()](Sized* used) {
              const std::unique_ptr<Sized> owner(used);
              if (const auto living = all.lock()) {
                const std::lock_guard again(living->mutex_);
                living->free_.push_back(std::move(*used));
              }
            }};
  }

  std::mutex mutex_;
  std::vector<Sized> free_;
};

}  // namespace trireme::servers
