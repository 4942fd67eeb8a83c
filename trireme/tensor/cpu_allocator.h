// The memory of CPU tensors: freed blocks are kept for the next step, and a thread may say where
// its next tensors should lie.
//
// glibc gives large blocks back to the kernel, so every training step faults its activations and
// gradients in anew: about 0.4 ms a MB, often more than the exchange between replicas costs.
// LibTorch asks one allocator for all CPU tensors of a process; this one takes its place and
// consults the calling thread's state.
#pragma once
#include <c10/core/Allocator.h>
#include <cstddef>
#include <memory>

namespace trireme {

// For the whole process, from now on; later calls do nothing. `trireme-worker` does it before its
// first tensor, engines that share memory do it when they are made. The process's resident size
// stays at its peak. Any thread.
void install_cpu_allocator();

// Bytes in front of every block that belong to the allocator.
constexpr size_t kBlockHeaderBytes = 64;

// Somewhere else that tensors may lie. It lives until the last of them is freed.
class AllocationSource {
 public:
  virtual ~AllocationSource() = default;
  // Memory for exactly `bytes`, 64-byte aligned, with kBlockHeaderBytes in front that are writable
  // too; or null to leave it to the ordinary memory.
  virtual void* try_allocate(size_t bytes) = 0;
  virtual void give_back(void* data) = 0;  // Any thread.
};

// While it lives, this thread's CPU tensors are offered to `source` first (on CPU, backward runs on
// the thread that calls it). Does nothing before install_cpu_allocator(). Scopes nest; the
// innermost alone is asked.
class AllocationScope {
 public:
  explicit AllocationScope(std::shared_ptr<AllocationSource> source);
  ~AllocationScope();
  AllocationScope(const AllocationScope&) = delete;

 private:
  std::shared_ptr<AllocationSource> previous_;
};

// Gives the blocks this thread keeps back to the system.
void release_kept_memory();

}  // namespace trireme
