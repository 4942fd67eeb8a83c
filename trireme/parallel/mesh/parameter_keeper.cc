#include <trireme/parallel/mesh/parameter_keeper.h>

namespace trireme {

std::vector<at::Tensor> tensors_of(const std::vector<OwnTensor>& own) {
  std::vector<at::Tensor> tensors;
  for (const OwnTensor& each : own) tensors.push_back(each.tensor);
  return tensors;
}

std::vector<NamedTensor> named(const std::vector<OwnTensor>& own) {
  return named(own, tensors_of(own));
}

std::vector<NamedTensor> named(const std::vector<OwnTensor>& own,
                               const std::vector<at::Tensor>& tensors) {
  std::vector<NamedTensor> result;
  for (size_t i = 0; i < own.size(); ++i) result.push_back({own[i].name, tensors[i]});
  return result;
}

}  // namespace trireme
