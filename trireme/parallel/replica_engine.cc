#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/optimizer.h>

#include <trireme/parallel/agreement.h>
#include <trireme/parallel/gradients.h>
#include <trireme/parallel/replica_engine.h>
#include <trireme/parallel/step_facts.h>

namespace trireme {

ReplicaEngine::ReplicaEngine(const EngineSetting& setting)
    : setting_(setting),
      model_(state_of(*setting.model.module)),
      optimizer_(setting.optimizer(model_.parameters)),
      optimizer_state_(*optimizer_, model_.parameters),
      passes_(setting_),
      plan_(plan::plan_replicas(setting.strategy, setting.group->placement(),
                                specs_of(model_.parameters))) {
  if (setting.mesh.shape) plan_.mesh = *setting.mesh.shape;
  agree_on_model();
  broadcast_tensors(group(), parameters());
  broadcast_tensors(group(), buffers());
}

void ReplicaEngine::agree_on_model() const {
  agree(group(), {{"strategy", setting_.strategy},
                  {"model", facts_of(model_)},
                  {"optimizer", facts_of(*optimizer_)}});
}

StepOutcome ReplicaEngine::step(const StepRequest& request) {
  const Traffic before = group().traffic();
  const double total = static_cast<double>(request.batch.global_size);
  Contribution mine;
  passes_.compute(request.batch, request.passes,
                  [&](const at::Tensor& loss, int64_t samples, bool) {
                    if (!loss.defined()) return;
                    const double weight = static_cast<double>(samples) / total;
                    if (samples > 0)
                      mine.loss_sum += loss.detach().item<double>() * static_cast<double>(samples);
                    mine.samples += samples;
                    loss.backward(at::full_like(loss.detach(), weight));
                  });
  separate_gradients(parameters());
  setting_.enter(Phase::exchange);
  const Wishes wishes = setting_.wishes();
  mine.wants_stop = wishes.stop;
  mine.wants_regroup = wishes.regroup;
  mine.total_samples = request.batch.global_size;

  StepOutcome outcome = share_facts(mine);
  if (outcome.nonfinite_ranks.empty() && outcome.samples > 0) {
    const at::NoGradGuard no_grad;
    exchange();
    updating_ = true;
    update();
    updating_ = false;
    outcome.updated = true;
    for (const auto& [name, tensor] : parameters())
      if (tensor.requires_grad()) outcome.updated_elements += tensor.numel();
  }
  for (const auto& [name, tensor] : parameters()) tensor.mutable_grad().reset();
  const Traffic sent = group().traffic() - before;
  outcome.operations = sent.operations;
  outcome.bytes_sent = sent.bytes_sent;
  return outcome;
}

StepOutcome ReplicaEngine::share_facts(const Contribution& mine) const {
  const StepFacts facts(group().size(), {});
  const at::Tensor values = at::zeros({facts.size()}, at::kDouble);
  facts.write(mine, group().rank(), {}, /*gradients_are_finite=*/true, values);
  group().all_reduce(values);
  return facts.read(values).outcome;
}

void ReplicaEngine::prepare_to_read() { broadcast_tensors(group(), buffers()); }

EngineState ReplicaEngine::state() {
  EngineState state;
  append(state.tensors, parameters(), StateKind::parameter);
  append(state.tensors, buffers(), StateKind::buffer);
  optimizer_state_.show(state);
  const StateView own = own_state();
  state.tensors.insert(state.tensors.end(), own.begin(), own.end());
  return state;
}

void ReplicaEngine::begin_load(const IncomingState& incoming) {
  if (incoming.model_is_new) {
    broadcast_tensors(group(), parameters());
    broadcast_tensors(group(), buffers());
  }
  optimizer_state_.begin_load(incoming.counters, incoming.tensors);
}

}  // namespace trireme
