#include <trireme/data/input_memory.h>
#include <trireme/net/shared_memory.h>
#include <algorithm>

namespace trireme::data {

int64_t input_memory(int64_t asked) {
  return asked >= 0 ? asked : net::available_memory_bytes() / 4;
}

int64_t memory_of_caches(int64_t input) { return input / 4 * 3; }

int64_t memory_of_batches(int64_t asked, int64_t caches) {
  const int64_t input = input_memory(asked);
  return std::max(input - caches, asked >= 0 ? 0 : input / 4);
}

int64_t memory_of_image(int64_t asked) {
  constexpr int64_t kLeastOfImage = int64_t{64} << 20;
  return asked < 0 ? kMostOfImage : std::clamp(asked / 4, kLeastOfImage, kMostOfImage);
}

}  // namespace trireme::data
