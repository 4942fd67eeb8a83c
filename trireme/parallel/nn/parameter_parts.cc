#include <ATen/ops/cat.h>

#include <trireme/parallel/mesh/parameter_keeper.h>
#include <trireme/parallel/nn/parameter_parts.h>

namespace trireme::nn {

std::vector<int64_t> ParameterParts::sizes() const {
  std::vector<int64_t> sizes = parts.front().sizes;
  for (size_t i = 1; i < parts.size(); ++i) sizes.front() += parts[i].sizes.front();
  return sizes;
}

std::pair<int64_t, int64_t> range_of(int64_t count, int rank, int ranks) {
  return {count * rank / ranks, count * (rank + 1) / ranks};
}

at::Tensor part_of(const at::Tensor& whole, const ParameterParts& parts) {
  std::vector<at::Tensor> boxes;
  for (const plan::TensorSlice& box : parts.parts)
    boxes.push_back(trireme::part_of(whole.detach(), box));
  return boxes.size() == 1 ? boxes.front().clone(at::MemoryFormat::Contiguous) : at::cat(boxes);
}

std::vector<at::Tensor> pieces_of(const at::Tensor& part, const ParameterParts& parts) {
  if (parts.parts.size() == 1) return {part};
  std::vector<at::Tensor> pieces;
  int64_t first = 0;
  for (const plan::TensorSlice& box : parts.parts) {
    pieces.push_back(part.narrow(0, first, box.sizes.front()));
    first += box.sizes.front();
  }
  return pieces;
}

}  // namespace trireme::nn
