#include <gtest/gtest.h>
#include <trireme/tensor/keep_memory.h>

#include <sys/resource.h>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace trireme::keep_memory_test {
namespace {

constexpr size_t kBlock = 40 << 20;  // Above every size that glibc keeps by itself.
constexpr long kFew = 100;           // The block has 10,240 pages.

void use_block() {
  void* block = std::malloc(kBlock);
  std::memset(block, 1, kBlock);
  std::free(block);
}

long page_faults() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

long page_faults_of_a_block_used_before() {
  use_block();
  const long before = page_faults();
  use_block();
  return page_faults() - before;
}

TEST(KeepMemory, AFreedBlockIsUsedAgainWithoutPageFaults) {
  if (!keep_freed_memory()) return;  // Another allocator is in use, such as a sanitizer's.
  EXPECT_LT(page_faults_of_a_block_used_before(), kFew);
  std::thread([] { EXPECT_LT(page_faults_of_a_block_used_before(), kFew); }).join();
}

}  // namespace
}  // namespace trireme::keep_memory_test
