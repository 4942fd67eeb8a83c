// The memory of CPU tensors. Freed blocks stay with the process for the next step, and a thread
// can choose where its next tensors lie.
//
// glibc gives large blocks back to the kernel, so every training step takes page faults for its
// activations and gradients again: about 0.4 ms a MB, often more than the exchange between
// replicas costs. LibTorch asks one allocator for all CPU tensors of a process. This allocator
// takes its place and consults the calling thread's state.
#pragma once
#include <c10/core/Allocator.h>
#include <cstddef>
#include <memory>

namespace trireme {

// Replaces the allocator of the whole process from now on; later calls do nothing.
// `trireme-worker` calls it before its first tensor, and an engine that shares memory calls it
// when it is made. The process's resident size stays at its peak. Any thread.
void install_cpu_allocator();

// Keeps less freed memory from now on, for processes whose memory is scarce. Blocks of 64 KB and
// more serve all threads, and a block that does not fit what is wanted goes back to the system
// before used and kept blocks together take an eighth more than was ever in use. Such memory costs
// page faults again. New tensors of that size begin at a page. Installs the allocator. Any thread.
void limit_kept_memory();

// The bytes in front of every block that belong to the allocator.
constexpr size_t kBlockHeaderBytes = 64;

// Another place for tensors. It lives until the last tensor in it is freed.
class AllocationSource {
 public:
  virtual ~AllocationSource() = default;
  // Returns memory for exactly `bytes`, 64-byte aligned, with kBlockHeaderBytes in front that are
  // writable too; or null, and the tensor then lies in ordinary memory.
  virtual void* try_allocate(size_t bytes) = 0;
  // Any thread.
  virtual void give_back(void* data) = 0;
};

// While a scope lives, this thread's CPU tensors are offered to `source` first. On CPU, backward
// runs on the thread that calls it. A scope does nothing before install_cpu_allocator(). Scopes
// nest; only the innermost one is asked.
class AllocationScope {
 public:
  explicit AllocationScope(std::shared_ptr<AllocationSource> source);
  ~AllocationScope();
  AllocationScope(const AllocationScope&) = delete;
  // Whether this thread is in a scope that has a source.
  static bool is_open();

 private:
  std::shared_ptr<AllocationSource> previous_;
};

// Gives the blocks that this thread keeps back to the system.
void release_kept_memory();

}  // namespace trireme
