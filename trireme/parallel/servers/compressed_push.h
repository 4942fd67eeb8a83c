// The gradients of a worker's push in fewer bytes, and what they leave out, for the next push.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/parallel/compression/push_codec.h>
#include <trireme/parallel/module_state.h>
#include <trireme/plan/placement_plan.h>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace trireme::servers {

// Used by one thread.
class CompressedPush {
 public:
  // Throws Error(unsupported) for a compression or a type of parameters that has no form.
  CompressedPush(const plan::CompressionOptions& options, const plan::PlacementPlan& placement);

  // Encodes the gradients as they are now, once for each push: all servers of a chain get the same
  // bytes, also if a call is made again.
  void encode(const std::vector<NamedTensor>& parameters);
  // Empty: there is no gradient. `piece`: its place in PlacementPlan::pieces.
  std::span<const std::byte> of(size_t piece) const { return codes_[piece]; }
  // The push that was encoded last counts: what it left out is added to the next one. Again, it
  // changes nothing.
  void commit() {
    if (std::exchange(is_pending_, false)) std::swap(kept_, left_);
  }

 private:
  compression::PushCodec codec_;
  std::vector<plan::ServerPiece> pieces_;
  std::vector<std::vector<std::byte>> codes_;    // [piece]
  std::vector<std::vector<float>> kept_, left_;  // [piece]; empty: nothing was left out.
  bool is_pending_ = false;                      // A push was encoded since the last commit().
};

}  // namespace trireme::servers
