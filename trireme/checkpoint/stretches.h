// Reads a piece of a file to places in memory, and hashes it while it is in the cache.
#pragma once
#include <trireme/checkpoint/digest.h>
#include <trireme/checkpoint/input_file.h>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace trireme::checkpoint {

// A range of bytes of a file, and its place in memory.
struct Stretch {
  uint64_t begin = 0;
  std::span<std::byte> to;
  uint64_t end() const { return begin + to.size(); }
};

// Reads [begin, end) and returns its digest. The stretches are sorted and do not overlap. Bytes
// without a place go to `scratch`, of at least end - begin bytes. Any number of threads.
PieceDigest read_piece(const InputFile& file, uint64_t begin, uint64_t end,
                       const std::vector<Stretch>& stretches, std::span<std::byte> scratch);

}  // namespace trireme::checkpoint
