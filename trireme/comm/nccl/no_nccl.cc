#include <trireme/base/error.h>
#include <trireme/comm/nccl/nccl_group.h>

namespace trireme::comm {

std::shared_ptr<Group> make_nccl_group(std::shared_ptr<membership::Member>, int, int,
                                       const NcclOptions&) {
  throw Error(ErrorCode::unsupported, "comm", "this build has no NCCL",
              "build with -DTRIREME_NCCL=ON and a LibTorch with CUDA");
}
bool nccl_is_compiled_in() { return false; }

}  // namespace trireme::comm
