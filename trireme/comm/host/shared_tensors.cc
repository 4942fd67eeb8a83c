#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <trireme/comm/host/shared_tensors.h>
#include <algorithm>

namespace trireme::comm {

at::Tensor SharedTensors::make(at::IntArrayRef sizes, at::ScalarType type) {
  const int64_t bytes =
      c10::multiply_integers(sizes) * static_cast<int64_t>(c10::elementSize(type));
  const int64_t each = std::max<int64_t>(64, (bytes + 63) / 64 * 64);
  const auto whole = static_cast<size_t>(each * team_->size());
  auto memory = team_->allocate(whole, whole, "a shared tensor");
  blocks_.push_back({memory, each, made_++});
  return at::from_blob(
      memory->data() + each * team_->rank(), sizes, [memory](void*) {},
      at::TensorOptions().dtype(type));
}

std::optional<SharedPlace> SharedTensors::find(const at::Tensor& tensor) {
  std::erase_if(blocks_, [](const Blocks& blocks) { return blocks.memory.expired(); });
  const auto* const data = static_cast<const std::byte*>(tensor.const_data_ptr());
  for (const Blocks& blocks : blocks_) {
    const auto memory = blocks.memory.lock();
    const std::byte* const mine = memory->data() + blocks.each * team_->rank();
    if (data < mine || data + tensor.nbytes() > mine + blocks.each) continue;
    SharedPlace place{memory, blocks.number, data - mine, {}};
    for (int rank = 0; rank < team_->size(); ++rank)
      place.begin.push_back(memory->data() + blocks.each * rank + place.offset);
    return place;
  }
  return std::nullopt;
}

}  // namespace trireme::comm
