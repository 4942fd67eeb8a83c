#include <torch/torch.h>
// torch.h comes first; this header relies on it.
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/comm/c10d_group.h>
#include <trireme/comm/control_store.h>
#include <trireme/comm/nccl/nccl_group.h>

namespace trireme::comm {

std::shared_ptr<Group> make_nccl_group(std::shared_ptr<membership::Member> member, int rank,
                                       int size, const NcclOptions& options) {
  if (options.device < 0 || options.device >= static_cast<int>(torch::cuda::device_count()))
    throw Error(ErrorCode::not_found, "comm",
                fmt::format("there is no GPU {} for NCCL: this host has {}", options.device,
                            torch::cuda::device_count()),
                "comm.backend: auto, which carries CPU tensors");
  auto store =
      c10::make_intrusive<ControlStore>(member, "nccl/" + options.name + "/", options.timeout);
  auto nccl = c10d::ProcessGroupNCCL::Options::create();
  nccl->timeout = options.timeout + kC10dMargin;
  try {
    auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, nccl);
    const at::Device gpu(at::kCUDA, static_cast<c10::DeviceIndex>(options.device));
    return make_c10d_group("nccl", gpu, std::move(backend),
                           std::make_shared<WaitLimits>(member, options.timeout));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    member->throw_if_lost();
    throw Error(ErrorCode::io, "comm", "NCCL cannot join the ranks: " + brief(error),
                "NCCL_DEBUG=INFO says more");
  }
}
bool nccl_is_compiled_in() { return true; }

}  // namespace trireme::comm
