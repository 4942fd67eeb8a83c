// A Group over one of LibTorch's own carriers, a c10d::Backend: what Gloo and NCCL have in common.
#pragma once
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <trireme/comm/group.h>
#include <trireme/comm/losses.h>
#include <memory>
#include <string>

namespace trireme::comm {

// `device`: where tensors must be. c10d cannot be told to give up, so waits go in slices, between
// which a loss that the coordinator has told ends them; the carrier's own time-out should be later
// than that of `losses`, by kC10dMargin.
std::shared_ptr<Group> make_c10d_group(const std::string& name, at::Device device,
                                       c10::intrusive_ptr<c10d::Backend> backend,
                                       std::shared_ptr<Losses> losses);
inline constexpr Milliseconds kC10dMargin{1000};

}  // namespace trireme::comm
