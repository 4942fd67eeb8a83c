#include <ATen/ops/cat.h>

#include <trireme/parallel/boxes.h>
#include <trireme/parallel/nn/parameter_parts.h>
#include <trireme/plan/data_plan.h>

namespace trireme::nn {

std::vector<int64_t> ParameterParts::sizes() const { return sizes_of(parts); }

std::pair<int64_t, int64_t> range_of(int64_t count, int rank, int ranks) {
  return plan::DataPlan::share(count, rank, ranks);
}

at::Tensor part_of(const at::Tensor& whole, const ParameterParts& parts) {
  std::vector<at::Tensor> boxes;
  for (const plan::TensorSlice& box : parts.parts)
    boxes.push_back(trireme::part_of(whole.detach(), box));
  return boxes.size() == 1 ? boxes.front().clone(at::MemoryFormat::Contiguous) : at::cat(boxes);
}

}  // namespace trireme::nn
