#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>

#include <trireme/base/seconds.h>
#include <trireme/parallel/activation_measure.h>
#include <trireme/parallel/module_state.h>
#include <trireme/parallel/pipeline/split_backward.h>
#include <trireme/tensor/kept_tensors.h>
#include <trireme/tensor/stored_tensors.h>
#include <trireme/tensor/thread_state.h>
#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <set>

namespace trireme {
namespace {

// [storage]: bytes.
using Storages = std::map<const void*, int64_t>;

const void* storage_behind(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

// Keeps tensors as usual, and notes their storages.
class NotedTensors : public SavedTensorKeeper {
 public:
  explicit NotedTensors(std::shared_ptr<const KeeperSetting> setting)
      : setting_(std::move(setting)) {}
  std::unique_ptr<SavedTensor> keep(const at::Tensor& tensor) override {
    const bool counts = !setting_->is_exempt(tensor);
    if (counts) {
      noted.emplace(storage_behind(tensor), static_cast<int64_t>(tensor.storage().nbytes()));
      addresses.push_back(tensor.storage().getWeakStorageImpl());
    }
    return keep_in_place(tensor, setting_, counts);
  }
  Storages noted;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> addresses;

 private:
  std::shared_ptr<const KeeperSetting> setting_;
};

// The tensors between two blocks. They belong to no graph.
struct Between {
  Tensors tensors;
  std::vector<bool> needs_gradient;  // The block before gave the tensor with a graph.
  std::vector<int> values;           // The numbers of their storages.
};

std::vector<int> each_once(const std::vector<int>& values) {
  const std::set<int> unique(values.begin(), values.end());
  return {unique.begin(), unique.end()};
}

// The inputs, outputs and saved tensors of one forward of a block.
struct ForwardRun {
  Tensors leaves, outputs;
  std::map<const void*, int> values;  // By storage.
  Storages saved;
  // No other storage gets the address of one that was saved, also after its end.
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> addresses;
  std::shared_ptr<ActivationBytes> held = std::make_shared<ActivationBytes>();
};

// Measures one block after the other.
class ChainMeasure {
 public:
  ChainMeasure(const StorageSet& of_model, const MeasureOptions& options)
      : of_model_(std::shared_ptr<void>(), &of_model), options_(options) {}

  // The inputs of the first block. They are of the batch and count nothing.
  Between begin(const Tensors& inputs);
  // Measures a block and goes on to its outputs.
  void add(const Block& block, ReplicaRandom* random, Between& between);
  plan::MeasuredChain take() { return std::move(chain_); }

 private:
  ForwardRun forward(const Block& block, const Between& between, plan::MeasuredBlock& measured);
  static double backward(const ForwardRun& run, const Tensors& parameters);
  void split(const Block& block, const Between& between, plan::MeasuredBlock& measured);
  void number_outputs(ForwardRun& run, plan::MeasuredBlock& measured);
  static plan::SavedInBlock sorted(const ForwardRun& run, const Storages& saved);

  const std::shared_ptr<const StorageSet> of_model_;
  const MeasureOptions& options_;
  plan::MeasuredChain chain_;
};

Between ChainMeasure::begin(const Tensors& inputs) {
  Between between{inputs, std::vector<bool>(inputs.size(), false), {}};
  for (size_t i = 0; i < inputs.size(); ++i) between.values.push_back(static_cast<int>(i));
  chain_.value_bytes.assign(inputs.size(), 0);
  chain_.least_moved_bytes = kLeastMovedBytes;
  return between;
}

plan::SavedInBlock ChainMeasure::sorted(const ForwardRun& run, const Storages& saved) {
  plan::SavedInBlock result;
  std::vector<int> values;
  for (const auto& [storage, bytes] : saved) {
    const auto known = run.values.find(storage);
    if (known == run.values.end()) {
      result.inner_bytes += bytes;
      if (bytes < kLeastMovedBytes) result.still_bytes += bytes;
    } else {
      values.push_back(known->second);
    }
  }
  result.values = each_once(values);
  return result;
}

void ChainMeasure::number_outputs(ForwardRun& run, plan::MeasuredBlock& measured) {
  std::vector<int> values;
  for (const at::Tensor& output : run.outputs) {
    const void* const storage = storage_behind(output);
    const auto [known, is_new] =
        run.values.emplace(storage, static_cast<int>(chain_.value_bytes.size()));
    if (is_new) {
      const bool counts = storage != nullptr && !of_model_->contains(storage);
      chain_.value_bytes.push_back(counts ? static_cast<int64_t>(output.storage().nbytes()) : 0);
    }
    values.push_back(known->second);
  }
  measured.outputs = each_once(values);
}

ForwardRun ChainMeasure::forward(const Block& block, const Between& between,
                                 plan::MeasuredBlock& measured) {
  ForwardRun run;
  Tensors own;  // The block may change its inputs in place, which no leaf allows.
  for (size_t i = 0; i < between.tensors.size(); ++i) {
    run.leaves.push_back(between.tensors[i].detach());
    if (between.needs_gradient[i]) run.leaves.back().requires_grad_();
    own.push_back(run.leaves.back().clone());
    run.values.emplace(storage_behind(own.back()), between.values[i]);
  }
  auto setting = std::make_shared<KeeperSetting>();
  setting->place = "the block '" + block.name + "'";
  setting->bytes = run.held;
  setting->of_model = of_model_;
  NotedTensors noting(setting);
  {
    const SavedTensorScope scope(&noting);
    const auto start = std::chrono::steady_clock::now();
    run.outputs = block.forward(own);
    measured.forward_seconds = seconds_since(start);
  }
  check_outputs(block, run.outputs);
  number_outputs(run, measured);
  run.saved = std::move(noting.noted);
  run.addresses = std::move(noting.addresses);
  measured.saved = sorted(run, run.saved);
  return run;
}

double ChainMeasure::backward(const ForwardRun& run, const Tensors& parameters) {
  Tensors wanted = run.leaves;
  wanted.insert(wanted.end(), parameters.begin(), parameters.end());
  std::erase_if(wanted, [](const at::Tensor& leaf) { return !leaf.requires_grad(); });
  Tensors roots, gradients;
  for (const at::Tensor& output : run.outputs)
    if (output.requires_grad()) {
      roots.push_back(output);
      gradients.push_back(at::ones_like(output.detach()));
    }
  if (roots.empty() || wanted.empty()) return 0;
  const auto start = std::chrono::steady_clock::now();
  torch::autograd::grad(roots, wanted, gradients, /*retain_graph=*/false, /*create_graph=*/false,
                        /*allow_unused=*/true);
  return seconds_since(start);
}

// Gradients of parameters that the first half computes at once go where nobody sees them.
class GradientsAside {
 public:
  explicit GradientsAside(const Tensors& parameters) : parameters_(parameters) {
    for (const at::Tensor& each : parameters_)
      former_.push_back(std::exchange(each.mutable_grad(), {}));
  }
  ~GradientsAside() {
    for (size_t i = 0; i < former_.size(); ++i)
      parameters_[i].mutable_grad() = std::move(former_[i]);
  }
  GradientsAside(const GradientsAside&) = delete;
  GradientsAside& operator=(const GradientsAside&) = delete;

 private:
  const Tensors& parameters_;
  Tensors former_;
};

Tensors trained_parameters_of(const Block& block) {
  Tensors parameters;
  for (const auto& module : block.modules)
    for (const auto& [name, tensor] : state_of(*module).parameters)
      if (tensor.requires_grad()) parameters.push_back(tensor);
  return parameters;
}

void ChainMeasure::split(const Block& block, const Between& between,
                         plan::MeasuredBlock& measured) {
  const Tensors parameters = trained_parameters_of(block);
  const GradientsAside aside(parameters);
  plan::MeasuredBlock again = measured;
  ForwardRun run = forward(block, between, again);
  Tensors gradients;
  for (const at::Tensor& output : run.outputs) gradients.push_back(at::ones_like(output.detach()));
  const int64_t after_forward = run.held->current();
  pipeline::SplitBackward halves(
      run.outputs, gradients, run.leaves,
      {.hold = [&](const c10::Storage& storage) { return run.held->hold(storage); }});
  run.outputs.clear();
  gradients.clear();
  halves.input_gradients();
  Storages left;
  for (const auto& [storage, bytes] : run.saved)
    if (run.held->is_held(storage)) left.emplace(storage, bytes);
  measured.between_halves = sorted(run, left);
  measured.between_halves.inner_bytes += halves.kept_bytes();
  measured.first_half_extra_bytes = run.held->peak() - after_forward;
}

void ChainMeasure::add(const Block& block, ReplicaRandom* random, Between& between) {
  const std::shared_ptr<void> prepared = options_.prepare ? options_.prepare(block) : nullptr;
  const Tensors parameters = trained_parameters_of(block), buffers = buffers_of(block);
  const at::AutoGradMode with_graph(true);
  const size_t values = chain_.value_bytes.size();
  plan::MeasuredBlock measured{.name = block.name, .inputs = each_once(between.values)};
  measured.needs_input_gradient = std::ranges::count(between.needs_gradient, true) > 0;
  double forward_seconds = std::numeric_limits<double>::infinity(),
         backward_seconds = forward_seconds;
  Between next;
  for (int number = 0; number < options_.runs; ++number) {
    const ThreadState before(random, buffers);
    const ThreadStateAgain as_before(before);
    chain_.value_bytes.resize(values);
    ForwardRun run = forward(block, between, measured);
    next = {};
    for (const at::Tensor& output : run.outputs) {
      next.tensors.push_back(output.detach());
      next.needs_gradient.push_back(output.requires_grad());
      next.values.push_back(run.values.at(storage_behind(output)));
    }
    const double seconds = backward(run, parameters);
    if (number == 0 && options_.runs > 1) continue;
    forward_seconds = std::min(forward_seconds, measured.forward_seconds);
    backward_seconds = std::min(backward_seconds, seconds);
  }
  measured.forward_seconds = forward_seconds;
  measured.backward_seconds = backward_seconds;
  if (options_.splits_backward && measured.needs_input_gradient) {
    const ThreadState before(random, buffers);
    const ThreadStateAgain as_before(before);
    chain_.value_bytes.resize(values);
    split(block, between, measured);
  }
  chain_.blocks.push_back(std::move(measured));
  between = std::move(next);
}

}  // namespace

Tensors buffers_of(const Block& block) {
  Tensors buffers;
  for (const auto& module : block.modules)
    for (const auto& [name, tensor] : state_of(*module).buffers) buffers.push_back(tensor);
  return buffers;
}

StorageSet storages_of(const torch::nn::Module& module) {
  StorageSet storages;
  const ModuleState state = state_of(module);
  for (const auto* const tensors : {&state.parameters, &state.buffers})
    for (const auto& [name, tensor] : *tensors)
      if (tensor.has_storage()) storages.insert(tensor.storage().unsafeGetStorageImpl());
  return storages;
}

StorageSet storages_of(const Batch& batch) {
  StorageSet storages;
  const auto add = [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.has_storage())
      storages.insert(tensor.storage().unsafeGetStorageImpl());
  };
  add(batch.data);
  add(batch.target);
  for (const auto& [name, tensor] : batch.more) add(tensor);
  return storages;
}

plan::MeasuredChain measure_chain(const std::vector<Block>& blocks, const Tensors& inputs,
                                  const StorageSet& of_model, ReplicaRandom* random,
                                  const MeasureOptions& options) {
  ChainMeasure all(of_model, options);
  Between between = all.begin(inputs);
  for (const Block& block : blocks) all.add(block, random, between);
  return all.take();
}

std::vector<plan::BlockMemory> measure(const std::vector<Block>& blocks, const Tensors& inputs,
                                       const StorageSet& of_model, ReplicaRandom* random) {
  const plan::MeasuredChain chain = measure_chain(blocks, inputs, of_model, random);
  return memory_of(chain, 0, static_cast<int>(chain.blocks.size()));
}

}  // namespace trireme
