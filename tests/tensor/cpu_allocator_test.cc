#include <torch/torch.h>
// After torch.h.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <trireme/tensor/cpu_allocator.h>
#include <thread>

namespace trireme {
namespace {

constexpr int64_t kElements = 10 << 20;  // 40 MB: above every size that glibc keeps by itself.

long faults() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

TEST(CpuAllocator, AFreedTensorsMemoryIsUsedAgainWithoutFaults) {
  install_cpu_allocator();
  const auto in_this_thread = [] {
    at::full({kElements}, 1.0);
    const long before = faults();
    at::full({kElements - 1000}, 2.0);  // Nearly the same size.
    EXPECT_LT(faults() - before, 20);
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
  for (const at::Tensor& tensor : tensors) EXPECT_TRUE((tensor == static_cast<double>(tensor.numel())).all().item<bool>());
}

class OneBlock : public AllocationSource {
 public:
  c10::DataPtr try_allocate(size_t bytes) override {
    if (bytes != sizeof place_) return {};
    return {place_, place_, [](void*) {}, c10::Device(c10::kCPU)};
  }
  bool holds(const at::Tensor& tensor) const { return tensor.const_data_ptr() == place_; }

 private:
  alignas(64) float place_[100];
};

TEST(AllocationScope, OffersThisThreadsTensorsToItsSource) {
  install_cpu_allocator();
  OneBlock outer, inner;
  {
    const AllocationScope scope(outer);
    EXPECT_TRUE(outer.holds(at::empty({100})));
    EXPECT_FALSE(outer.holds(at::empty({99})));
    {
      const AllocationScope nested(inner);
      EXPECT_TRUE(inner.holds(at::empty({100})));
    }
    EXPECT_TRUE(outer.holds(at::empty({100})));
    std::thread([&] { EXPECT_FALSE(outer.holds(at::empty({100}))); }).join();
  }
  EXPECT_FALSE(outer.holds(at::empty({100})));
}

}  // namespace
}  // namespace trireme
