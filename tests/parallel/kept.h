// A loop around a ParameterKeeper, as an engine has it, and nets whose parameters are hard to
// divide.
#pragma once
#include "models.h"
// This header must come after those of torch.
#include <gtest/gtest.h>

#include <trireme/comm/dtype.h>
#include <trireme/parallel/boxes.h>
#include <trireme/parallel/mesh/keep_shards.h>
#include <trireme/tensor/hollow.h>
#include <map>

namespace trireme::tests {

// Uneven layers, a parameter without dimensions, one without elements, one that is frozen, one
// that is never used, one that some ranks use, and a tied weight.
struct OddNet : torch::nn::Module {
  OddNet() {
    at::manual_seed(3);
    to(at::kDouble);
    fill(*this);
    second->bias.set_requires_grad(false);
  }
  std::vector<Block> blocks() {
    return {{"first",
             {first.ptr()},
             [this](const Tensors& x) -> Tensors { return {at::tanh(first(x[0])), x[0]}; }},
            {"middle",
             {middle},
             [this](const Tensors& x) -> Tensors {
               const at::Tensor skip = x[1];
               return {at::tanh(second(x[0])) * scale +
                           (uses_extra ? extra.sum() : at::zeros({}, at::kDouble)),
                       skip};
             }},
            {"last", {last, first.ptr()}, [this](const Tensors& x) -> Tensors {
               const at::Tensor again = at::tanh(at::linear(x[1], first->weight));
               return {third(x[0]) + again.narrow(1, 0, 4)};
             }}};
  }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(6, 11));
  std::shared_ptr<torch::nn::Module> middle =
      register_module("middle", std::make_shared<torch::nn::Module>());
  std::shared_ptr<torch::nn::Module> last =
      register_module("last", std::make_shared<torch::nn::Module>());
  torch::nn::Linear second = middle->register_module("second", torch::nn::Linear(11, 211));
  at::Tensor scale = middle->register_parameter("scale", at::zeros({}));
  at::Tensor extra = middle->register_parameter("extra", at::zeros({3, 5}));
  at::Tensor nothing = middle->register_parameter("nothing", at::zeros({0, 4}));
  torch::nn::Linear third = last->register_module("third", torch::nn::Linear(211, 4));
  at::Tensor unused = last->register_parameter("unused", at::zeros({7}));
  bool uses_extra = true;
};

// One rank. `level` -1 stands for keep_copies().
template <typename Net>
class Kept {
 public:
  Kept(std::shared_ptr<Group> group, int level, const OptimizerFactory& optimizer,
       std::shared_ptr<Net> made = std::make_shared<Net>(), plan::BucketOptions buckets = {},
       OffloadOptions offload = {})
      : net(std::move(made)), group_(std::move(group)) {
    ParameterKeeperSetting setting;
    for (const auto& [name, tensor] : state_of(*net).parameters)
      setting.parameters.push_back(
          {name, tensor, {plan::TensorSlice::whole(name, tensor.sizes().vec())}});
    setting.replicas = group_;
    setting.optimizer = optimizer;
    setting.buckets = buckets;
    setting.offload = std::move(offload);
    setting.blocks = net->blocks();
    bool enters = false;
    for (const Block& block : setting.blocks) {
      setting.leaves_backward.push_back(enters);
      for (const auto& module : block.modules)
        for (const at::Tensor& tensor : module->parameters())
          enters = enters || tensor.requires_grad();
      setting.enters_backward.push_back(enters);
    }
    is_copy_ = level < 1 || group_->size() == 1;
    keeper = level < 0 ? keep_copies(std::move(setting)) : keep_shards(std::move(setting), level);
    blocks = keeper->blocks();
  }

  at::Tensor forward(const at::Tensor& x) const { return output_of(blocks, {x}); }

  // COLLECTIVE. Gradients of the mean loss over `whole` on all ranks, in `passes` micro-batches.
  void compute(const Data& whole, int passes = 1) {
    const Data mine = whole.share(group_->rank(), group_->size());
    for (int pass = 0; pass < passes; ++pass) {
      const Data part = mine.share(pass, passes);
      if (part.size() == 0) {
        keeper->forward_without_samples(0, blocks.size());
        keeper->backward_begins(BackwardPart::all, 0, blocks.size());
      } else {
        const at::Tensor loss = at::cross_entropy_loss(forward(part.x).to(at::kDouble), part.y);
        keeper->backward_begins(BackwardPart::all, 0, blocks.size());
        (loss * (static_cast<double>(part.size()) / static_cast<double>(whole.size()))).backward();
      }
      keeper->backward_ended();
    }
  }
  // COLLECTIVE. The global norm before clipping.
  double step(const Data& whole, int passes = 1, double clip_norm = 0) {
    compute(whole, passes);
    keeper->reduce();
    const at::Tensor square = at::full({1}, keeper->squared_norm(), at::kDouble);
    if (!is_copy_) group_->all_reduce(square);
    const double norm = std::sqrt(square.item<double>());
    keeper->update(clip_norm > 0 && norm > clip_norm ? clip_norm / (norm + 1e-6) : 1);
    keeper->publish();
    keeper->drop_gradients();
    return norm;
  }
  EngineState state() const {
    EngineState state;
    keeper->show(state);
    return state;
  }

  std::shared_ptr<Net> net;
  std::unique_ptr<ParameterKeeper> keeper;
  std::vector<Block> blocks;

 private:
  std::shared_ptr<Group> group_;
  bool is_copy_ = false;
};

// The state of all ranks as a checkpoint has it: whole tensors under their names in a file.
struct WholeState {
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, StateKind> kinds;
  Json counters;
};
inline WholeState whole_of(const std::vector<EngineState>& ranks) {
  const at::NoGradGuard no_grad;
  WholeState whole;
  std::map<std::string, at::Tensor> filled;
  for (const EngineState& state : ranks) {
    whole.counters = state.counters;
    for (const StateEntry& entry : state.tensors) {
      const std::string name = name_in_file(entry, 0);
      whole.kinds[name] = entry.kind;
      auto& tensor = whole.tensors[name];
      auto& counts = filled[name];
      if (!tensor.defined()) {
        tensor = at::zeros(entry.slice.shape, entry.tensor.options().requires_grad(false));
        counts = at::zeros(entry.slice.shape, at::kInt);
      }
      EXPECT_EQ(entry.tensor.sizes().vec(), entry.slice.sizes) << name;
      part_of(tensor, entry.slice).copy_(entry.tensor.detach());
      part_of(counts, entry.slice).fill_(1);
    }
  }
  for (const auto& [name, counts] : filled)
    EXPECT_EQ(counts.sum().item<int64_t>(), counts.numel()) << name << " has a hole";
  return whole;
}
// Moves a state into a rank that has made no step, as the Trainer does.
inline void load(ParameterKeeper& keeper, const WholeState& whole) {
  const at::NoGradGuard no_grad;
  IncomingState incoming{whole.counters, {}, /*model_is_new=*/true};
  for (const auto& [name, tensor] : whole.tensors)
    if (!is_of_model(whole.kinds.at(name)))
      incoming.tensors.push_back({name, tensor.sizes().vec(), to_plan(tensor.scalar_type())});
  const auto fill_entries = [&](bool of_model) {
    EngineState state;
    keeper.show(state);
    for (const StateEntry& entry : state.tensors) {
      const auto found = whole.tensors.find(name_in_file(entry, 0));
      if (is_of_model(entry.kind) != of_model || found == whole.tensors.end()) continue;
      entry.tensor.copy_(part_of(found->second, entry.slice));
    }
  };
  fill_entries(true);
  keeper.begin_load(incoming);
  fill_entries(false);
  keeper.end_load();
}
inline double difference(const WholeState& a, const WholeState& b) {
  double worst = 0;
  EXPECT_EQ(a.kinds, b.kinds);
  for (const auto& [name, tensor] : a.tensors)
    if (b.tensors.contains(name) && tensor.numel() > 0)
      worst = std::max(worst, difference(tensor, b.tensors.at(name)));
  return worst;
}

}  // namespace trireme::tests
