// The loop over rows of one size in a mapped file, such as those of .npy files and of tokens: what
// a programme without a library has.
//   mapped_loop PATH SECONDS none|full HEAD ROW STEP    bytes: before the first row, of a row, and
//                                                       from one row to the next
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string_view>
#include <vector>

#include "record_loop.h"

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  const bool shuffles = std::string_view(argv[3]) == "full";
  const size_t head = std::strtoull(argv[4], nullptr, 10);
  const size_t row = std::strtoull(argv[5], nullptr, 10);
  const size_t step = std::strtoull(argv[6], nullptr, 10);
  const int file = open(argv[1], O_RDONLY | O_CLOEXEC);
  struct stat facts;
  if (file < 0 || fstat(file, &facts) != 0) return 1;
  const auto size = static_cast<size_t>(facts.st_size);
  void* const mapped = mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) return 1;
  const char* const rows = static_cast<const char*>(mapped) + head;
  std::vector<size_t> order((size - head - row) / step + 1);
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937_64 numbers(1);
  bench::run_epochs(std::strtod(argv[2], nullptr), [&](bench::BatchMemory& memory, int64_t) {
    if (shuffles) std::shuffle(order.begin(), order.end(), numbers);
    for (const size_t index : order) {
      memory.put(rows + index * step, row);
      memory.end_record();
    }
  });
  return 0;
}
