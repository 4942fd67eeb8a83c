#include <fmt/ranges.h>

#include <trireme/parallel/optimizer_groups.h>
#include <unordered_set>

namespace trireme {

Error foreign_parameter(int rank, size_t group, size_t place, const at::Tensor& tensor) {
  return Error(
      ErrorCode::invalid_argument, "parallel",
      fmt::format("rank {}: parameter {} of group {} of the optimizer, of shape [{}], does "
                  "not belong to the model that the engine was given",
                  rank, place, group, fmt::join(tensor.sizes(), ", ")),
      "one module that registers all modules which the optimizer trains, or an optimizer "
      "for each");
}

void require_parameters_of(const std::vector<NamedTensor>& parameters,
                           const torch::optim::Optimizer& optimizer, int rank) {
  std::unordered_set<const void*> known;
  for (const auto& [name, tensor] : parameters) known.insert(tensor.unsafeGetTensorImpl());
  const auto& groups = optimizer.param_groups();
  for (size_t group = 0; group < groups.size(); ++group)
    for (size_t place = 0; place < groups[group].params().size(); ++place)
      if (const at::Tensor& tensor = groups[group].params()[place];
          !known.contains(tensor.unsafeGetTensorImpl()))
        throw foreign_parameter(rank, group, place, tensor);
}

}  // namespace trireme
