// Ranks that are processes with a GPU each, carried by NCCL through LibTorch's c10d. Meets through
// a store of ours, as Gloo does; NCCL's own connections authenticate nothing. It knows no tags:
// messages between two ranks are told apart by their order alone. An operation's wait() lets the
// caller's CUDA stream wait, not the thread.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/comm/group.h>
#include <memory>
#include <string>

namespace trireme::launch {
class Member;
}

namespace trireme::comm {

struct NcclOptions {
  std::string name = "world";  // Of this group: keys in the store are kept apart by it.
  int device = 0;              // This rank's GPU.
  Milliseconds timeout{60000};
};

// COLLECTIVE over the member's workers. Tensors are on that GPU. The build without NCCL throws
// Error(unsupported) saying so.
std::shared_ptr<Group> make_nccl_group(std::shared_ptr<launch::Member> member, int rank, int size,
                                       const NcclOptions& options);
bool nccl_is_compiled_in();

}  // namespace trireme::comm
