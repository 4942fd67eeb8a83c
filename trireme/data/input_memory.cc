#include <trireme/data/input_memory.h>
#include <trireme/net/shared_memory.h>
#include <trireme/records/open.h>
#include <algorithm>

namespace trireme::data {
namespace {

constexpr int64_t kLeastOfOne = int64_t{64} << 20;  // The least limit of an image or a block.

}  // namespace

int64_t input_memory(int64_t asked) {
  return asked >= 0 ? asked : net::available_memory_bytes() / 4;
}

int64_t memory_of_caches(int64_t input) { return input / 4 * 3; }

int64_t memory_of_batches(int64_t asked, int64_t caches) {
  const int64_t input = input_memory(asked);
  return std::max(input - caches, asked >= 0 ? 0 : input / 4);
}

int64_t memory_of_kept_blocks(int64_t asked, int64_t caches) {
  return part_of_blocks(memory_of_batches(asked, caches));
}

int64_t memory_of_block(int64_t asked) {
  return asked < 0 ? records::kUsualMemory : std::max(asked / 2, kLeastOfOne);
}

int64_t memory_of_image(int64_t asked) {
  return asked < 0 ? kMostOfImage : std::clamp(asked / 4, kLeastOfOne, kMostOfImage);
}

}  // namespace trireme::data
