#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>
#include <trireme/tensor/cpu_allocator.h>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

namespace trireme {
namespace {

constexpr size_t kSmallest = size_t{64} << 10;  // Smaller blocks glibc itself keeps.
constexpr size_t kHugePage = size_t{2} << 20;

thread_local AllocationSource* this_threads_source = nullptr;

// Blocks are of sizes an eighth of a power of two apart, so that one serves slightly different tensors.
size_t rounded(size_t bytes) {
  const size_t step = std::max(kSmallest, std::bit_floor(bytes) / 8);
  return (bytes + step - 1) / step * step;
}

class Kept;

// In front of what the tensor sees: the deleter is told nothing else.
struct Header {
  alignas(64) size_t bytes;
  const Kept* taken_by;
};

void* from_system(size_t bytes) {
  void* block = nullptr;
  const size_t whole = bytes + sizeof(Header);
  if (posix_memalign(&block, whole >= kHugePage ? kHugePage : 64, whole) != 0) return nullptr;
  if (whole >= kHugePage) madvise(block, whole, MADV_HUGEPAGE);  // A wish; any answer will do.
  static_cast<Header*>(block)->bytes = bytes;
  return block;
}

// Blocks that wait to be used again, by size. A thread's own need no lock; what another thread frees goes to all, so that a loader that
// makes tensors for a trainer gets them back.
class Kept {
 public:
  void* take(size_t bytes) {
    const auto found = blocks_.find(bytes);
    if (found == blocks_.end() || found->second.empty()) return nullptr;
    void* const block = found->second.back();
    found->second.pop_back();
    return block;
  }
  void put(void* block) { blocks_[static_cast<Header*>(block)->bytes].push_back(block); }
  void move_to(Kept& other) {
    for (auto& [bytes, blocks] : blocks_)
      for (void* const block : blocks) other.put(block);
    blocks_.clear();
  }
  void release() {
    for (auto& [bytes, blocks] : blocks_)
      for (void* const block : blocks) std::free(block);
    blocks_.clear();
  }

 private:
  std::map<size_t, std::vector<void*>> blocks_;
};

struct Common {
  std::mutex mutex;
  Kept kept;
};
// Never destroyed: tensors in static variables are freed after everything else.
Common& common() {
  static auto* const instance = new Common;
  return *instance;
}

struct OfThread {
  Kept kept;
  ~OfThread();
};
thread_local bool thread_is_ending = false;
OfThread::~OfThread() {
  thread_is_ending = true;
  const std::lock_guard lock(common().mutex);
  kept.move_to(common().kept);
}
thread_local OfThread of_thread;

void* take_block(size_t bytes) {
  if (!thread_is_ending) {
    if (void* const block = of_thread.kept.take(bytes)) return block;
  }
  {
    const std::lock_guard lock(common().mutex);
    if (void* const block = common().kept.take(bytes)) return block;
  }
  if (void* const block = from_system(bytes)) return block;
  release_kept_memory();
  return from_system(bytes);
}

void give_back(void* data) {
  void* const block = static_cast<std::byte*>(data) - sizeof(Header);
  if (!thread_is_ending && static_cast<Header*>(block)->taken_by == &of_thread.kept) return of_thread.kept.put(block);
  const std::lock_guard lock(common().mutex);
  common().kept.put(block);
}

class CpuAllocator : public c10::Allocator {
 public:
  explicit CpuAllocator(c10::Allocator* ordinary) : ordinary_(ordinary) {}

  c10::DataPtr allocate(size_t bytes) override {
    if (this_threads_source != nullptr) {
      if (c10::DataPtr placed = this_threads_source->try_allocate(bytes)) return placed;
    }
    if (bytes < kSmallest) return ordinary_->allocate(bytes);
    void* const block = take_block(rounded(bytes));
    if (block == nullptr) return ordinary_->allocate(bytes);  // Throws LibTorch's error for too little memory.
    static_cast<Header*>(block)->taken_by = thread_is_ending ? nullptr : &of_thread.kept;
    void* const data = static_cast<std::byte*>(block) + sizeof(Header);
    return {data, data, &give_back, c10::Device(c10::DeviceType::CPU)};
  }
  // raw_allocate() would need one deleter for all blocks: those who use it get ordinary memory.
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }

 private:
  c10::Allocator* const ordinary_;
};

}  // namespace

void install_cpu_allocator() {
  static const bool installed = [] {
    static CpuAllocator allocator(c10::GetCPUAllocator());
    c10::SetCPUAllocator(&allocator, 100);
    return true;
  }();
  static_cast<void>(installed);
}

AllocationScope::AllocationScope(AllocationSource& source) : previous_(this_threads_source) { this_threads_source = &source; }
AllocationScope::~AllocationScope() { this_threads_source = previous_; }

void release_kept_memory() {
  if (!thread_is_ending) of_thread.kept.release();
  const std::lock_guard lock(common().mutex);
  common().kept.release();
}

}  // namespace trireme
