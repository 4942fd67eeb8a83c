#include <fmt/format.h>

#include <trireme/parallel/state_view.h>
#include <map>

namespace trireme {

bool is_of_model(StateKind kind) {
  return kind == StateKind::parameter || kind == StateKind::buffer;
}
bool is_of_one_rank(StateKind kind) {
  return kind == StateKind::rank || kind == StateKind::residual;
}

StateEntry whole(const std::string& name, const at::Tensor& tensor, StateKind kind) {
  return {plan::TensorSlice::whole(name, tensor.sizes().vec()), tensor, kind};
}

void append(StateView& view, const std::vector<NamedTensor>& tensors, StateKind kind) {
  for (const auto& [name, tensor] : tensors) view.push_back(whole(name, tensor, kind));
}

std::vector<NamedTensor> tensors_of(const StateView& view, StateKind kind) {
  std::vector<NamedTensor> tensors;
  for (const StateEntry& entry : view)
    if (entry.kind == kind) tensors.push_back({entry.slice.tensor, entry.tensor});
  return tensors;
}

std::vector<NamedTensor> updated_tensors(const StateView& view) {
  std::map<std::string, at::Tensor> masters;
  for (auto& [name, tensor] : tensors_of(view, StateKind::master)) masters.emplace(name, tensor);
  std::vector<NamedTensor> updated = tensors_of(view, StateKind::parameter);
  for (auto& [name, tensor] : updated)
    if (const auto master = masters.find(name); master != masters.end()) tensor = master->second;
  return updated;
}

std::string name_in_file(const StateEntry& entry, int rank) {
  const std::string& name = entry.slice.tensor;
  switch (entry.kind) {
    case StateKind::parameter:
    case StateKind::buffer:
    case StateKind::optimizer:
    case StateKind::archive: return name;
    case StateKind::master: return "engine/master/" + name;
    case StateKind::average: return "engine/ema/" + name;
    case StateKind::common: return "engine/" + name;
    case StateKind::rank:
    case StateKind::residual: break;
  }
  return fmt::format("rank{}/{}", rank, name);
}

std::string parameter_of(const std::string& state_name) {
  const size_t slash = state_name.find('/');
  return slash == std::string::npos ? "" : state_name.substr(slash + 1);
}

}  // namespace trireme
