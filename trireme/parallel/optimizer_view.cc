#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/optim/optimizer.h>

#include <trireme/comm/dtype.h>
#include <trireme/parallel/optimizer_view.h>

namespace trireme {

void OptimizerView::show(EngineState& state) const {
  const bool is_loading = !incoming_.tensors.empty();
  const OptimizerState own = is_loading ? incoming_ : state_of(optimizer_, parameters_);
  append(state.tensors, own.tensors,
         own.kind == "opaque" ? StateKind::archive : StateKind::optimizer);
  state.counters["optimizer"] = {{"kind", own.kind}, {"counters", own.counters}};
}

void OptimizerView::begin_load(const Json& counters, const std::vector<plan::TensorSpec>& saved) {
  const Json own = counters.value("optimizer", Json::object());
  OptimizerState state{own.value("kind", ""), {}, own.value("counters", Json::object())};
  const bool is_opaque = state.kind == "opaque";
  for (const plan::TensorSpec& spec : saved)
    // A state with names takes those that it knows. The rest are tensors of the engine.
    if (!is_opaque || spec.name == "archive")
      state.tensors.push_back(
          {spec.name, at::empty(spec.shape, at::TensorOptions().dtype(to_torch(spec.dtype)))});
  if (is_opaque && kind_of(optimizer_) == state.kind && state.tensors.size() == 1)
    incoming_ = std::move(state);
  else
    load_state(optimizer_, parameters_, state);
}

void OptimizerView::end_load() {
  if (!incoming_.tensors.empty())
    load_state(optimizer_, parameters_, std::exchange(incoming_, OptimizerState()));
}

std::vector<double> OptimizerView::rates() const {
  std::vector<double> rates;
  for (const auto& group : optimizer_.param_groups()) rates.push_back(group.options().get_lr());
  return rates;
}

void OptimizerView::set_rates(std::span<const double> rates) {
  auto& groups = optimizer_.param_groups();
  for (size_t i = 0; i < groups.size() && i < rates.size(); ++i)
    groups[i].options().set_lr(rates[i]);
}

}  // namespace trireme
