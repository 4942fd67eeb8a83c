#include <c10/core/CPUAllocator.h>
#include <malloc.h>
#include <sys/mman.h>
#include <trireme/tensor/cpu_allocator.h>
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace trireme {
namespace {

constexpr size_t kSmallest = size_t{64} << 10;  // glibc itself keeps smaller blocks.
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kPage = 4096;
constexpr size_t kSpareFraction = 8;

thread_local std::shared_ptr<AllocationSource> this_threads_source;

// Rounds a size up to a multiple of an eighth of a power of two, so that one block serves tensors
// of slightly different sizes.
size_t rounded(size_t bytes) {
  const size_t step = std::max(kSmallest, std::bit_floor(bytes) / 8);
  return (bytes + step - 1) / step * step;
}

class Kept;

// The header in front of the tensor's memory. The deleter gets only a pointer, so all else is
// here.
struct Header {
  alignas(64) size_t bytes;
  const Kept* taken_by;
  std::shared_ptr<AllocationSource>* source;  // Null for the allocator's own memory.
  bool is_mapped;                             // See map_from_system().
};
static_assert(sizeof(Header) == kBlockHeaderBytes);
Header* header_of(void* data) {
  return reinterpret_cast<Header*>(static_cast<std::byte*>(data) - sizeof(Header));
}

void* from_system(size_t bytes) {
  void* block = nullptr;
  const size_t whole = bytes + sizeof(Header);
  if (posix_memalign(&block, whole >= kHugePage ? kHugePage : 64, whole) != 0) return nullptr;
  // This is only a hint: an error changes nothing.
  if (whole >= kHugePage) madvise(block, whole, MADV_HUGEPAGE);
  *static_cast<Header*>(block) = {bytes, nullptr, nullptr, /*is_mapped=*/false};
  return block;
}

// The same with a mapping of its own, so that the system gets the memory back at once. The tensor
// begins at a page, as direct reads and writes of files want it.
void* map_from_system(size_t bytes) {
  void* const start =
      ::mmap(nullptr, kPage + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) return nullptr;
  if (bytes >= kHugePage) madvise(start, kPage + bytes, MADV_HUGEPAGE);
  auto* const header = header_of(static_cast<std::byte*>(start) + kPage);
  *header = {bytes, nullptr, nullptr, /*is_mapped=*/true};
  return header;
}

void free_block(void* block) {
  auto* const header = static_cast<Header*>(block);
  if (!header->is_mapped) return std::free(block);
  ::munmap(reinterpret_cast<std::byte*>(header) + sizeof(Header) - kPage, kPage + header->bytes);
}

// Blocks that wait for reuse, by size. A thread's own blocks need no lock. A block that another
// thread frees goes to a list for all threads, so that a loader that makes tensors for a trainer
// gets its memory back.
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
      for (void* const block : blocks) free_block(block);
    blocks_.clear();
  }
  // Returns the bytes of the block that it has freed, or 0 if there is none.
  size_t release_largest() {
    while (!blocks_.empty()) {
      auto& [bytes, blocks] = *blocks_.rbegin();
      if (blocks.empty()) {
        blocks_.erase(bytes);
        continue;
      }
      free_block(blocks.back());
      blocks.pop_back();
      return bytes;
    }
    return 0;
  }

 private:
  std::map<size_t, std::vector<void*>> blocks_;
};

struct Common {
  std::mutex mutex;
  Kept kept;
  Kept mapped;  // Blocks of map_from_system(), which serve all threads.
  // Bytes of mapped blocks: those in use, the most that were, and those in `mapped`.
  size_t used_bytes = 0, most_bytes = 0, kept_bytes = 0;
};
// This object is never destroyed: tensors in static variables are freed after everything else.
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

std::atomic<bool> is_limited{false};

void* take_mapped(size_t bytes) {
  Common& all = common();
  const std::lock_guard lock(all.mutex);
  all.used_bytes += bytes;
  all.most_bytes = std::max(all.most_bytes, all.used_bytes);
  if (void* const block = all.mapped.take(bytes)) {
    all.kept_bytes -= bytes;
    return block;
  }
  while (all.kept_bytes > 0 &&
         all.used_bytes + all.kept_bytes > all.most_bytes + all.most_bytes / kSpareFraction)
    all.kept_bytes -= all.mapped.release_largest();
  if (void* const block = map_from_system(bytes)) return block;
  all.mapped.release();
  all.kept_bytes = 0;
  void* const block = map_from_system(bytes);
  if (block == nullptr) all.used_bytes -= bytes;
  return block;
}

void give_back_mapped(Header* header) {
  Common& all = common();
  const std::lock_guard lock(all.mutex);
  all.used_bytes -= header->bytes;
  all.kept_bytes += header->bytes;
  all.mapped.put(header);
}

void* take_block(size_t bytes) {
  if (is_limited) return take_mapped(bytes);
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

// LibTorch frees every block through this function, also through raw_deallocate(), which knows
// only the pointer.
void give_back(void* data) {
  if (data == nullptr) return;
  Header* const header = header_of(data);
  if (header->source != nullptr) {
    const std::unique_ptr<std::shared_ptr<AllocationSource>> source(header->source);
    return (*source)->give_back(data);
  }
  if (header->bytes < kSmallest) return std::free(header);
  if (header->is_mapped) return give_back_mapped(header);
  if (is_limited) {  // Blocks of before are not taken again.
    if (!thread_is_ending) of_thread.kept.release();
    return std::free(header);
  }
  if (!thread_is_ending && header->taken_by == &of_thread.kept) return of_thread.kept.put(header);
  const std::lock_guard lock(common().mutex);
  common().kept.put(header);
}

class CpuAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* const data = bytes == 0 ? nullptr : take(bytes);
    return {data, data, &give_back, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

 private:
  static void* take(size_t bytes) {
    if (this_threads_source) {
      if (void* const placed = this_threads_source->try_allocate(bytes)) {
        header_of(placed)->source = new std::shared_ptr<AllocationSource>(this_threads_source);
        return placed;
      }
    }
    void* const block = bytes < kSmallest ? from_system(bytes) : take_block(rounded(bytes));
    TORCH_CHECK_WITH(OutOfMemoryError, block != nullptr, "not enough memory: a tensor of ", bytes,
                     " bytes");
    static_cast<Header*>(block)->taken_by = thread_is_ending ? nullptr : &of_thread.kept;
    return static_cast<std::byte*>(block) + sizeof(Header);
  }
};

}  // namespace

void install_cpu_allocator() {
  static const bool installed = [] {
    static CpuAllocator allocator;
    c10::SetCPUAllocator(&allocator, 100);
    return true;
  }();
  static_cast<void>(installed);
}

void limit_kept_memory() {
  install_cpu_allocator();
  is_limited = true;
  release_kept_memory();
}

AllocationScope::AllocationScope(std::shared_ptr<AllocationSource> source)
    : previous_(std::exchange(this_threads_source, std::move(source))) {}
bool AllocationScope::is_open() { return this_threads_source != nullptr; }
AllocationScope::~AllocationScope() { this_threads_source = std::move(previous_); }

void release_kept_memory() {
  if (!thread_is_ending) of_thread.kept.release();
  {
    const std::lock_guard lock(common().mutex);
    common().kept.release();
    common().mapped.release();
    common().kept_bytes = 0;
  }
  malloc_trim(0);  // Without this call glibc would keep the memory that it got back.
}

}  // namespace trireme
