#include <trireme/tensor/keep_memory.h>

#include <climits>
#include <cstdlib>
// Sanitizers have an allocator of their own.
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TRIREME_USES_GLIBC_MALLOC 1
#include <malloc.h>
#endif

namespace trireme {

bool keep_freed_memory() {
#ifdef TRIREME_USES_GLIBC_MALLOC
  // Blocks of any size come from the heap: a block with its own mapping would go back to the
  // kernel.
  const bool from_heap = mallopt(M_MMAP_MAX, 0) == 1;
  // The heap never shrinks.
  const bool stays = mallopt(M_TRIM_THRESHOLD, INT_MAX) == 1;
  // The heaps of other threads do not shrink either. glibc unmaps such a heap unless the one
  // before it has less free room than this.
  constexpr int kLargestThreadHeap = 64 << 20;
  const bool threads_too = mallopt(M_TOP_PAD, kLargestThreadHeap) == 1;
  return from_heap && stays && threads_too;
#else
  return false;
#endif
}

}  // namespace trireme
