#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/base/text.h>
#include <trireme/parallel/activation_measure.h>
#include <trireme/parallel/agreement.h>
#include <trireme/parallel/fused/fused_optimizer.h>
#include <trireme/parallel/mesh/block_costs.h>
#include <trireme/parallel/mesh/model_forms.h>
#include <trireme/parallel/mesh/trial_division.h>
#include <trireme/parallel/nn/tensor_parallel_layer.h>
#include <trireme/parallel/sync_batch_norm.h>
#include <trireme/plan/data_plan.h>
#include <trireme/plan/mesh_plan.h>
#include <trireme/plan/shard_bytes.h>
#include <trireme/tensor/autocast.h>
#include <trireme/tensor/hollow.h>
#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>

namespace trireme {
namespace {

// Values with which a forward neither grows nor stops being finite, at little cost.
void fill_for_trial(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const at::Tensor values = tensor.variable_data();
  if (!tensor.requires_grad() || !tensor.is_floating_point() || tensor.dim() == 0)
    values.zero_();
  else
    values.fill_(tensor.dim() == 1
                     ? 0.1
                     : static_cast<double>(tensor.size(0)) / static_cast<double>(tensor.numel()));
}

// The hollow tensors of a block have memory while it lives.
class TrialMemory {
 public:
  explicit TrialMemory(const Block& block) {
    for (const auto& module : block.modules) {
      const ModuleState state = state_of(*module);
      for (const auto* const part : {&state.parameters, &state.buffers})
        for (const auto& [name, tensor] : *part) {
          if (!is_hollow(tensor)) continue;
          give_memory(tensor);
          given_.push_back(tensor);
          fill_for_trial(tensor);
        }
    }
  }
  ~TrialMemory() {
    for (const at::Tensor& tensor : given_) make_hollow(tensor);
  }
  TrialMemory(const TrialMemory&) = delete;
  TrialMemory& operator=(const TrialMemory&) = delete;

 private:
  Tensors given_;
};

std::set<std::string> names_with_memory(const torch::nn::Module& module) {
  std::set<std::string> names;
  const ModuleState state = state_of(module);
  for (const auto* const part : {&state.parameters, &state.buffers})
    for (const auto& [name, tensor] : *part)
      if (!is_hollow(tensor)) names.insert(name);
  return names;
}

// The loss belongs to the last block: it runs in the same part.
void join_loss(plan::MeasuredChain& chain) {
  const plan::MeasuredBlock loss = chain.blocks.back();
  chain.blocks.pop_back();
  plan::MeasuredBlock& last = chain.blocks.back();
  last.forward_seconds += loss.forward_seconds;
  last.backward_seconds += loss.backward_seconds;
  last.outputs = loss.outputs;
  last.saved_by_loss = loss.saved;
  plan::SavedInBlock& halves = last.between_halves;
  const plan::SavedInBlock& of_loss = loss.between_halves;
  halves.values.insert(halves.values.end(), of_loss.values.begin(), of_loss.values.end());
  halves.inner_bytes += of_loss.inner_bytes;
}

plan::MeasuredChain measure_on_sample(const EngineSetting& setting, std::vector<Block> blocks,
                                      const plan::PipelinePlan& pipeline, int runs) {
  const int replicas = setting.mesh.along(plan::kDataAxis)->size();
  const Batch pass = setting.sample({0, replicas});
  const auto [from, to] = plan::DataPlan::share(pass.size(), 0, pipeline.facts.microbatches);
  const Batch sample = pass.part(from, to - from);
  Tensors inputs;
  for (const std::string& name : setting.model.inputs) inputs.push_back(sample.tensor(name));
  // Tensors that the module holds without having registered them get their values.
  if (setting.keep_only) setting.keep_only(names_with_memory(*setting.model.module));
  const TrialDivision divided(*setting.model.module,
                              setting.mesh.along(plan::kTensorAxis)->size());
  blocks.push_back({"the loss", {}, [&](const Tensors& outputs) {
                      return Tensors{setting.loss(only_output(blocks, outputs), sample)};
                    }});
  StorageSet exempt = storages_of(*setting.model.module);
  exempt.merge(storages_of(sample));
  const Autocast mixed(setting.autocast);
  const DeferredBatchNorm norms;  // Never committed: running statistics stay as they are.
  plan::MeasuredChain chain =
      measure_chain(blocks, inputs, exempt, setting.random,
                    {.runs = runs,
                     .splits_backward = pipeline.splits_backward(),
                     .prepare = [](const Block& block) -> std::shared_ptr<void> {
                       return std::make_shared<TrialMemory>(block);
                     }});
  join_loss(chain);
  return chain;
}

// The bytes of a parameter with its gradient and the optimizer's state, as a rank keeps them: the
// first one of a tensor axis.
class StateCosts {
 public:
  explicit StateCosts(const EngineSetting& setting)
      : level_(plan::shard_level_of(setting.strategy, setting.division.shard)),
        replicas_(setting.mesh.along(plan::kDataAxis)->size()) {
    torch::nn::Module& module = *setting.model.module;
    const std::vector<NamedTensor> parameters = state_of(module).parameters;
    const int dividers = setting.mesh.along(plan::kTensorAxis)->size();
    for (const nn::ParameterParts& part : nn::parts_of(module, 0, dividers)) {
      const std::vector<int64_t> sizes = part.sizes();
      elements_[part.name] =
          std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
    }
    // The number of tensors does not depend on sizes, and an optimizer may make them at once. It
    // updates masters of 16-bit parameters.
    std::vector<NamedTensor> updated;
    for (const auto& [name, tensor] : parameters) {
      if (!tensor.requires_grad()) continue;
      const auto dtype = tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
      const std::vector<int64_t> sizes(static_cast<size_t>(tensor.dim()), 1);
      places_.emplace(name, static_cast<int>(updated.size()));
      updated.push_back({name, at::zeros(sizes, dtype).requires_grad_()});
    }
    optimizer_ = setting.optimizer(updated);
    update_ = fused::FusedOptimizer::of(*optimizer_, updated);
    for (const auto& [name, place] : places_)
      of_optimizer_[name] = update_ ? update_->state_tensors(place) : 0;
  }

  int64_t of(const plan::TensorSpec& spec) const {
    const int64_t bytes = plan::bytes_of(spec.dtype), updated = std::max<int64_t>(4, bytes);
    const int64_t elements = elements_.at(spec.name);
    if (!spec.trainable) return elements * bytes;
    const plan::StateBytes state{.parameter = bytes,
                                 .gradient = bytes,
                                 .optimizer = updated * of_optimizer_.at(spec.name),
                                 .master = updated > bytes ? updated : 0};
    return plan::sharded_bytes(level_, replicas_, elements, state).total();
  }

 private:
  int level_, replicas_;
  std::map<std::string, int64_t> elements_;
  std::map<std::string, int> places_, of_optimizer_;
  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  std::unique_ptr<fused::FusedOptimizer> update_;
};

}  // namespace

bool must_be_measured(const EngineSetting& setting, const plan::PipelinePlan& pipeline) {
  return pipeline.parts() > 1 || microbatches_held(pipeline).front() > 1 ||
         !setting.memory.is_plain();
}

plan::MeasuredChain measured_blocks(const EngineSetting& setting, const std::vector<Block>& blocks,
                                    const plan::PipelinePlan& pipeline) {
  const std::string& cut = setting.division.pipeline.cut;
  const bool plans_memory = !setting.memory.is_plain();
  const bool cuts_by_time =
      pipeline.parts() > 1 && (trimmed(cut) == "auto" || trimmed(cut) == "time");
  const bool is_needed = plans_memory || plan::needs_measured_blocks(cut);
  const auto measured_now = [&]() -> plan::MeasuredChain {
    if (setting.measured && !setting.measured->empty()) return *setting.measured;
    if (!setting.sample) return {};
    constexpr int kRunsForTimes = 4;
    const bool needs_times = cuts_by_time || plans_memory;
    try {
      return measure_on_sample(setting, blocks, pipeline, needs_times ? kRunsForTimes : 1);
    } catch (const std::exception& error) {
      if (is_needed) throw;
      log_warning(
          "the blocks could not be measured, so activations are not predicted, and "
          "pipeline.cut=auto cuts by parameters: {}",
          brief(error));
      return {};
    }
  };
  auto chain = plan::MeasuredChain::from_json(
      found_by_first(*setting.group, [&] { return measured_now().to_json(); }));
  if (setting.measured) *setting.measured = chain;
  return chain;
}

std::vector<plan::BlockCost> costs_of(const EngineSetting& setting,
                                      const std::vector<Block>& blocks,
                                      const std::vector<BlockTensors>& tensors,
                                      const std::vector<plan::TensorSpec>& forms,
                                      const plan::MeasuredChain& measured) {
  std::map<std::string, const plan::TensorSpec*> by_name;
  for (const plan::TensorSpec& spec : forms) by_name.emplace(spec.name, &spec);
  // The blocks may have been measured for predictions alone. Such figures differ from run to run,
  // and nothing of them may be in a cut that needs none.
  const std::string_view cut = trimmed(setting.division.pipeline.cut);
  const bool is_cut_by_measure = cut == "auto" || plan::needs_measured_blocks(std::string(cut));
  std::optional<StateCosts> states;
  if (cut == "memory" && !measured.empty()) states.emplace(setting);
  const std::vector<plan::ActivationCost> activations = activation_costs(measured);
  std::vector<plan::BlockCost> costs;
  for (size_t i = 0; i < blocks.size(); ++i) {
    plan::BlockCost& cost = costs.emplace_back();
    cost.name = blocks[i].name;
    for (const std::string& name : tensors[i].parameters) {
      cost.parameters += by_name.at(name)->elements();
      if (states) cost.parameter_bytes += states->of(*by_name.at(name));
    }
    if (measured.empty() || !is_cut_by_measure) continue;
    const plan::MeasuredBlock& block = measured.blocks[i];
    cost.forward_seconds = block.forward_seconds;
    cost.backward_seconds = block.backward_seconds;
    cost.activation_bytes = activations[i].bytes;
    cost.entry_bytes = activations[i].entry_bytes;
    cost.output_bytes = measured.bytes_of(block.outputs);
  }
  return costs;
}

}  // namespace trireme
