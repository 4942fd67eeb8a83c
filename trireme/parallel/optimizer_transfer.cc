#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/optim/optimizer.h>

#include <trireme/base/json.h>
#include <trireme/comm/dtype.h>
#include <trireme/parallel/agreement.h>
#include <trireme/parallel/optimizer_transfer.h>
#include <trireme/parallel/optimizer_view.h>
#include <utility>

namespace trireme {
void take_optimizer_of(int root, Group& group, torch::optim::Optimizer& optimizer,
                       const std::vector<NamedTensor>& parameters) {
  const bool has_it = group.rank() == root;
  OptimizerView view(optimizer, parameters);
  OptimizerState state;
  Json facts;
  if (has_it) {
    state = state_of(optimizer, parameters);
    Json tensors = Json::array();
    for (const auto& [name, tensor] : state.tensors)
      tensors.push_back({{"name", name},
                         {"shape", tensor.sizes().vec()},
                         {"dtype", plan::to_string(to_stored(tensor.scalar_type()))}});
    facts = {{"kind", state.kind},
             {"counters", state.counters},
             {"tensors", std::move(tensors)},
             {"rates", view.rates()}};
  }
  facts = Json::parse(broadcast_text(group, facts.dump(), root));
  if (!has_it) {
    state = {facts["kind"], {}, facts["counters"]};
    for (const Json& each : facts["tensors"])
      state.tensors.push_back(
          {each["name"],
           at::empty(each["shape"].get<std::vector<int64_t>>(),
                     to_torch(plan::dtype_from_string(each["dtype"].get<std::string>())))});
  }
  for (const auto& [name, tensor] : state.tensors) {
    at::Tensor bytes = as_bytes(has_it ? tensor.detach().contiguous() : tensor);
    group.broadcast(bytes, root);
  }
  if (has_it) return;
  load_state(optimizer, parameters, state);
  view.set_rates(facts["rates"].get<std::vector<double>>());
}

}  // namespace trireme
