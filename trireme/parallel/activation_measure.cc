#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>

#include <trireme/parallel/activation_measure.h>
#include <trireme/parallel/module_state.h>
#include <trireme/tensor/kept_tensors.h>
#include <trireme/tensor/thread_state.h>
#include <chrono>
#include <map>

namespace trireme {
namespace {

// [storage]: bytes.
using Storages = std::map<const void*, int64_t>;

Storages storages_behind(const Tensors& tensors) {
  Storages storages;
  for (const at::Tensor& tensor : tensors)
    if (tensor.has_storage())
      storages.emplace(tensor.storage().unsafeGetStorageImpl(),
                       static_cast<int64_t>(tensor.storage().nbytes()));
  return storages;
}

int64_t total_bytes(const Storages& storages) {
  int64_t bytes = 0;
  for (const auto& [storage, size] : storages) bytes += size;
  return bytes;
}

// Removes from `storages` those in `others`. Returns whether there were any.
bool take_out(Storages& storages, const Storages& others) {
  return std::erase_if(storages, [&](const auto& each) { return others.contains(each.first); }) >
         0;
}

// Keeps tensors as usual, and notes their storages.
class NotedTensors : public SavedTensorKeeper {
 public:
  explicit NotedTensors(std::shared_ptr<const KeeperSetting> setting)
      : setting_(std::move(setting)) {}
  std::unique_ptr<SavedTensor> keep(const at::Tensor& tensor) override {
    if (!setting_->is_exempt(tensor)) noted.merge(storages_behind({tensor}));
    return keep_in_place(tensor, setting_, /*is_counted=*/false);
  }
  Storages noted;

 private:
  std::shared_ptr<const KeeperSetting> setting_;
};

double seconds_from(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Measures one block on tensors that belong to no graph. `needs_gradient[i]`: whether the block
// before it gave input i with a graph.
class BlockRun {
 public:
  BlockRun(const Block& block, const StorageSet& of_model) : block_(block), of_model_(of_model) {
    for (const auto& module : block.modules) {
      for (const auto& [name, tensor] : state_of(*module).parameters)
        if (tensor.requires_grad()) parameters_.push_back(tensor);
      for (const auto& [name, tensor] : state_of(*module).buffers) buffers_.push_back(tensor);
    }
  }
  const Tensors& buffers() const { return buffers_; }

  // Returns the outputs, which belong to the graph no more.
  Tensors run(const Tensors& inputs, const std::vector<bool>& needs_gradient, bool is_first,
              plan::BlockMemory& measure);
  std::vector<bool> gives_gradient;

 private:
  double backward(const Tensors& outputs, Tensors wanted) const;

  const Block& block_;
  const StorageSet& of_model_;
  Tensors parameters_, buffers_;
};

Tensors BlockRun::run(const Tensors& inputs, const std::vector<bool>& needs_gradient,
                      bool is_first, plan::BlockMemory& measure) {
  const at::AutoGradMode with_graph(true);
  Tensors leaves, own;  // The block may change its inputs in place, which no leaf allows.
  for (size_t i = 0; i < inputs.size(); ++i) {
    leaves.push_back(inputs[i].detach());
    if (needs_gradient[i]) leaves.back().requires_grad_();
    own.push_back(leaves.back().clone());
  }
  const Storages of_inputs = storages_behind(own);
  auto setting = std::make_shared<KeeperSetting>();
  setting->place = "the block '" + block_.name + "'";
  setting->of_model = std::shared_ptr<const StorageSet>(std::shared_ptr<void>(), &of_model_);
  NotedTensors noting(setting);
  Tensors outputs;
  {
    const SavedTensorScope scope(&noting);
    const auto start = std::chrono::steady_clock::now();
    outputs = block_.forward(own);
    measure.forward_seconds = seconds_from(start);
  }
  Storages of_outputs = storages_behind(outputs);
  take_out(of_outputs, of_inputs);
  measure.name = block_.name;
  measure.saves_input = take_out(noting.noted, of_inputs) && !is_first;
  measure.saves_output = take_out(noting.noted, of_outputs);
  measure.inner_bytes = total_bytes(noting.noted);
  measure.input_bytes = is_first ? 0 : total_bytes(of_inputs);
  measure.output_bytes = total_bytes(of_outputs);
  gives_gradient.clear();
  Tensors free;
  for (const at::Tensor& output : outputs) {
    gives_gradient.push_back(output.requires_grad());
    free.push_back(output.detach());
  }
  own.clear();
  measure.backward_seconds = backward(outputs, std::move(leaves));
  return free;
}

double BlockRun::backward(const Tensors& outputs, Tensors wanted) const {
  std::erase_if(wanted, [](const at::Tensor& leaf) { return !leaf.requires_grad(); });
  wanted.insert(wanted.end(), parameters_.begin(), parameters_.end());
  Tensors roots, gradients;
  for (const at::Tensor& output : outputs)
    if (output.requires_grad()) {
      roots.push_back(output);
      gradients.push_back(at::ones_like(output.detach()));
    }
  if (roots.empty() || wanted.empty()) return 0;
  const auto start = std::chrono::steady_clock::now();
  torch::autograd::grad(roots, wanted, gradients, /*retain_graph=*/false, /*create_graph=*/false,
                        /*allow_unused=*/true);
  return seconds_from(start);
}

}  // namespace

StorageSet storages_of(const torch::nn::Module& module) {
  StorageSet storages;
  const ModuleState state = state_of(module);
  for (const auto* const tensors : {&state.parameters, &state.buffers})
    for (const auto& [name, tensor] : *tensors)
      if (tensor.has_storage()) storages.insert(tensor.storage().unsafeGetStorageImpl());
  return storages;
}

std::vector<plan::BlockMemory> measure(const std::vector<Block>& blocks, const Tensors& inputs,
                                       const StorageSet& of_model, ReplicaRandom* random) {
  std::vector<plan::BlockMemory> measures;
  Tensors tensors = inputs;
  std::vector<bool> needs_gradient(inputs.size(), false);
  for (const Block& block : blocks) {
    plan::BlockMemory& measured = measures.emplace_back();
    BlockRun run(block, of_model);
    Tensors outputs;
    for (int time = 0; time < 2; ++time) {
      const ThreadState before(random, run.buffers());
      const ThreadStateAgain as_before(before);
      outputs = run.run(tensors, needs_gradient, /*is_first=*/measures.size() == 1, measured);
    }
    tensors = std::move(outputs);
    needs_gradient = run.gives_gradient;
  }
  return measures;
}

}  // namespace trireme
