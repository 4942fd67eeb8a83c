// A Group over one of LibTorch's own backends, a c10d::Backend: the common part of Gloo and NCCL.
#pragma once
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <trireme/comm/group.h>
#include <trireme/comm/wait_limits.h>
#include <memory>
#include <string>

namespace trireme::comm {

// `device`: the device on which tensors must be. A c10d wait cannot be interrupted, so waits go in
// slices; between slices, a lost worker that the coordinator has reported ends them. The time-out
// of the c10d backend should be longer than that of `limits`, by kC10dMargin.
std::shared_ptr<Group> make_c10d_group(const std::string& name, at::Device device,
                                       c10::intrusive_ptr<c10d::Backend> backend,
                                       std::shared_ptr<WaitLimits> limits);
inline constexpr Milliseconds kC10dMargin{1000};

}  // namespace trireme::comm
