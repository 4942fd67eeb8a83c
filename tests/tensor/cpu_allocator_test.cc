#include <ATen/ATen.h>
#include <torch/nn/modules/conv.h>
// These headers must come after torch.h.
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <trireme/tensor/cpu_allocator.h>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

namespace trireme::cpu_allocator_test {
namespace {

constexpr int64_t kElements = 10 << 20;  // 40 MB, above every size that glibc keeps by itself.

long page_faults() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

TEST(CpuAllocator, AFreedTensorsMemoryIsUsedAgainWithoutPageFaults) {
  install_cpu_allocator();
  const auto in_this_thread = [] {
    at::full({kElements}, 1.0);
    const long before = page_faults();
    at::full({kElements - 1000}, 2.0);  // This tensor has nearly the same size.
    EXPECT_LT(page_faults() - before, 20);
  };
  in_this_thread();
  std::thread(in_this_thread).join();
}

TEST(CpuAllocator, MemoryFreedByAnotherThreadComesBack) {
  install_cpu_allocator();
  const void* place = nullptr;
  {
    at::Tensor tensor = at::empty({kElements});
    place = tensor.const_data_ptr();
    std::thread([given = std::move(tensor)]() mutable { given.reset(); }).join();
  }
  std::vector<at::Tensor> taken;
  bool found = false;
  for (int i = 0; i < 8 && !found; ++i) {
    taken.push_back(at::empty({kElements}));
    found = taken.back().const_data_ptr() == place;
  }
  EXPECT_TRUE(found);
}

TEST(CpuAllocator, BlocksAreAlignedAndApart) {
  install_cpu_allocator();
  std::vector<at::Tensor> tensors;
  for (int64_t elements = 1; elements < (1 << 22); elements = elements * 3 + 1) {
    tensors.push_back(at::full({elements}, static_cast<double>(elements)));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensors.back().const_data_ptr()) % 64, 0U);
  }
  for (const at::Tensor& tensor : tensors)
    EXPECT_TRUE((tensor == static_cast<double>(tensor.numel())).all().item<bool>());
}

// Some libraries, such as oneDNN, take memory and give it back by the pointer alone.
TEST(CpuAllocator, RawMemoryComesAndGoes) {
  install_cpu_allocator();
  for (const size_t bytes : {1, 1000, 100000, 10000000}) {
    void* const data = c10::GetCPUAllocator()->raw_allocate(bytes);
    std::memset(data, 1, bytes);
    c10::GetCPUAllocator()->raw_deallocate(data);
  }
}

// Without the pages of files: how much of a library is there depends on what the system has read.
int64_t resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "RssAnon:") continue;
    int64_t kib = 0;
    status >> kib;
    return kib * 1024;
  }
  return 0;
}

// Uses tensors of many sizes one after the other, and returns whether the memory of only a few of
// them has stayed.
bool keeps_little() {
  limit_kept_memory();
  const int64_t before = resident_bytes();
  for (int64_t megabytes = 20; megabytes < 40; ++megabytes) {
    at::Tensor tensor = at::full({megabytes << 18}, 1.0);
    if (reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 4096 != 0) return false;
    std::thread([given = std::move(tensor)]() mutable { given.reset(); }).join();
  }
  return resident_bytes() - before < (50 << 20);
}

TEST(CpuAllocatorDeathTest, LimitedItKeepsNoMoreThanWasInUse) {
  // The limit is that of a whole process.
  EXPECT_EXIT(std::_Exit(keeps_little() ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

TEST(CpuAllocator, ConvolutionsRunInTheAllocatorsMemory) {
  install_cpu_allocator();
  torch::nn::Conv2d layer(torch::nn::Conv2dOptions(3, 16, 3).stride(2));
  for (int i = 0; i < 3; ++i) layer(at::randn({8, 3, 32, 32})).sum().backward();
  EXPECT_TRUE(layer->weight.grad().isfinite().all().item<bool>());
}

class OneBlock : public AllocationSource {
 public:
  void* try_allocate(size_t bytes) override {
    return bytes == kBytes && !taken_.exchange(true) ? place_ + kBlockHeaderBytes : nullptr;
  }
  void give_back(void* data) override {
    EXPECT_EQ(data, place_ + kBlockHeaderBytes);
    taken_ = false;
  }
  bool holds(const at::Tensor& tensor) const {
    return tensor.const_data_ptr() == place_ + kBlockHeaderBytes;
  }

 private:
  static constexpr size_t kBytes = 400;
  alignas(64) std::byte place_[kBlockHeaderBytes + kBytes];
  std::atomic<bool> taken_{false};
};

TEST(AllocationScope, OffersThisThreadsTensorsToItsSource) {
  install_cpu_allocator();
  auto outer = std::make_shared<OneBlock>(), inner = std::make_shared<OneBlock>();
  {
    const AllocationScope scope(outer);
    EXPECT_TRUE(outer->holds(at::empty({100})));
    EXPECT_FALSE(outer->holds(at::empty({99})));
    {
      const AllocationScope nested(inner);
      EXPECT_TRUE(inner->holds(at::empty({100})));
    }
    EXPECT_TRUE(outer->holds(at::empty({100})));
    std::thread([&] { EXPECT_FALSE(outer->holds(at::empty({100}))); }).join();
    void* const raw = c10::GetCPUAllocator()->raw_allocate(400);
    c10::GetCPUAllocator()->raw_deallocate(raw);
  }
  EXPECT_FALSE(outer->holds(at::empty({100})));
}

TEST(AllocationScope, ATensorOutlivesScopeAndHolder) {
  install_cpu_allocator();
  auto source = std::make_shared<OneBlock>();
  const std::weak_ptr<OneBlock> watched = source;
  at::Tensor tensor;
  {
    const AllocationScope scope(std::move(source));
    tensor = at::full({100}, 3.0);
  }
  EXPECT_FALSE(watched.expired());
  EXPECT_EQ(tensor.sum().item<double>(), 300);
  tensor.reset();
  EXPECT_TRUE(watched.expired());
}

}  // namespace
}  // namespace trireme::cpu_allocator_test
