// Engines on the ranks of a group, and batches for them.
#pragma once
#include "models.h"
// This header must come after those of torch.
#include <gtest/gtest.h>

#include <trireme/comm/dtype.h>
#include <trireme/parallel/engine.h>
#include <map>
#include <numeric>

namespace trireme::tests {

inline at::Tensor cross_entropy(const at::Tensor& output, const at::Tensor& target) {
  const bool is_half = output.scalar_type() == at::kBFloat16;
  return at::cross_entropy_loss(is_half ? output.to(at::kFloat) : output, target);
}

// Everything for an engine of `net`, which has forward().
template <typename Net>
EngineSetting setting_of(std::shared_ptr<Group> group, std::shared_ptr<Net> net,
                         OptimizerFactory optimizer = SGD{.lr = 0.1, .momentum = 0.9}) {
  EngineSetting setting;
  setting.strategy = "mirrored";
  setting.group = std::move(group);
  setting.model = {net, [net](const at::Tensor& x) { return net->forward(x); }};
  setting.optimizer = std::move(optimizer);
  setting.loss = cross_entropy;
  return setting;
}

// The share of a rank in a global batch, as the Loader hands it out.
inline Batch batch_of(const Data& whole, int rank, int size) {
  const Data mine = whole.share(rank, size);
  Batch batch;
  batch.data = mine.x;
  batch.target = mine.y;
  batch.indices.resize(static_cast<size_t>(mine.size()));
  std::iota(batch.indices.begin(), batch.indices.end(),
            plan::DataPlan::share(whole.size(), rank, size).first);
  batch.global_size = batch.global_used = whole.size();
  return batch;
}

// COLLECTIVE. Takes one step of the engine on its share of `whole`.
inline StepOutcome take_step(Engine& engine, const Data& whole, int64_t number = 1,
                             int passes = 1) {
  const auto [index, count] = engine.data_share();
  const Batch batch = batch_of(whole, index, count);
  return engine.step({batch, number, passes});
}

inline std::vector<std::string> names_in(const StateView& view, StateKind kind) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_of(view, kind)) names.push_back(name);
  return names;
}

// A copy of the state, as a checkpoint has it, with every rank's own tensors.
inline EngineState copy_of(EngineState state) {
  for (StateEntry& entry : state.tensors) entry.tensor = entry.tensor.detach().clone();
  return state;
}

// COLLECTIVE. Moves a saved state into an engine, as the Trainer does with a checkpoint. `rank` is
// the one that saved it.
inline void load(Engine& engine, const EngineState& saved, int rank) {
  const at::NoGradGuard no_grad;
  IncomingState incoming{saved.counters, {}, /*model_is_new=*/true};
  std::map<std::string, at::Tensor> values;
  for (const StateEntry& entry : saved.tensors) {
    const std::string name = name_in_file(entry, rank);
    values.emplace(name, entry.tensor);
    if (!is_of_model(entry.kind))
      incoming.tensors.push_back(
          {name, entry.tensor.sizes().vec(), to_plan(entry.tensor.scalar_type())});
  }
  // The checkpoint is read into the model before anything else.
  for (const StateEntry& entry : engine.state().tensors)
    if (is_of_model(entry.kind)) entry.tensor.copy_(values.at(name_in_file(entry, rank)));
  engine.begin_load(incoming);
  const StateView view = engine.state().tensors;
  EXPECT_EQ(view.size(), saved.tensors.size());
  for (const StateEntry& entry : view)
    if (!is_of_model(entry.kind)) entry.tensor.copy_(values.at(name_in_file(entry, rank)));
  engine.end_load();
}

}  // namespace trireme::tests
