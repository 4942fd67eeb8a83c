// Ranks that are processes with one GPU each, with NCCL (through LibTorch's c10d) as the backend.
// They meet through our store, as with Gloo; NCCL's own connections are not authenticated. NCCL
// has no tags: only their order distinguishes messages between two ranks. The wait() of an
// operation makes the caller's CUDA stream wait, not the thread.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/comm/group.h>
#include <memory>
#include <string>

namespace trireme::membership {
class Member;
}

namespace trireme::comm {

struct NcclOptions {
  // The name of this group; its keys in the store contain it.
  std::string name = "world";
  int device = 0;  // The GPU of this rank.
  Milliseconds timeout{60000};
};

// COLLECTIVE over the member's workers. Tensors are on that GPU. A build without NCCL throws
// Error(unsupported) saying so.
std::shared_ptr<Group> make_nccl_group(std::shared_ptr<membership::Member> member, int rank,
                                       int size, const NcclOptions& options);
bool nccl_is_compiled_in();

}  // namespace trireme::comm
