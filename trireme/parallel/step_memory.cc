#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/nn/module.h>

#include <trireme/parallel/activation_measure.h>
#include <trireme/parallel/step_memory.h>
#include <trireme/parallel/sync_batch_norm.h>
#include <algorithm>

namespace trireme {
namespace {

// Adds what the loss saves to the last block, because it is held together with that.
void add_loss(plan::BlockMemory& last, const plan::BlockMemory& loss) {
  last.saves_output = last.saves_output || loss.saves_input;
  last.inner_bytes += loss.inner_bytes + (loss.saves_output ? loss.output_bytes : 0);
}

}  // namespace

StepMemory::StepMemory(const EngineSetting& setting)
    : setting_(setting), memory_(setting.model, setting.random) {
  check(setting.memory);
}

void StepMemory::begin_step(const Batch& pass) {
  ++steps_;
  if (is_plain() || is_ready_) return;
  if (pass.size() == 0 && !setting_.norm_group) return;
  std::vector<plan::MemoryDecision> decisions(memory_.blocks().size(), plan::MemoryDecision::keep);
  if (pass.size() > 0) {
    plan_ = planned(pass);
    for (size_t i = 0; i < decisions.size(); ++i) decisions[i] = plan_->blocks[i].decision;
  }
  SwapOptions swap;
  swap.folder = setting_.memory.swap_dir;
  memory_.decide(of_first_rank(std::move(decisions)), swap);
  is_ready_ = true;
}

plan::MemoryPlan StepMemory::planned(const Batch& pass) {
  std::vector<Block> blocks = memory_.blocks();
  blocks.push_back({"the loss", {}, [&](const Tensors& outputs) {
                      return Tensors{setting_.loss(outputs.at(0), pass)};
                    }});
  Tensors inputs;
  for (const std::string& name : setting_.model.inputs) inputs.push_back(pass.tensor(name));
  auto measures = measure(blocks, inputs, memory_.of_model(), setting_.random);
  const plan::BlockMemory loss = measures.back();
  measures.pop_back();
  add_loss(measures.back(), loss);
  return plan::plan_memory(std::move(measures), plan_options());
}

plan::MemoryPlanOptions StepMemory::plan_options() const {
  const MemoryOptions& asked = setting_.memory;
  plan::MemoryPlanOptions options;
  options.policy = asked.policy;
  options.budget_bytes = asked.budget;
  options.rules = parse_memory_rules(asked.rules);
  options.can_nest = false;          // Blocks run forward at most twice.
  options.counts_gradients = false;  // The budget is that of activations.
  options.compressed_fraction = 0.5;
  if (!asked.swap_dir.empty()) {
    const SwapSpeed speed = measure_swap(asked.swap_dir);
    options.out_bytes_per_second = speed.out_bytes_per_second;
    options.in_bytes_per_second = speed.in_bytes_per_second;
  }
  const auto compresses = [](const plan::MemoryRule& rule) {
    return rule.decision == plan::MemoryDecision::compress;
  };
  // Compression changes gradients, so only a rule of the user turns it on.
  if (std::ranges::none_of(options.rules, compresses)) options.compressed_fraction = 0;
  return options;
}

std::vector<plan::MemoryDecision> StepMemory::of_first_rank(
    std::vector<plan::MemoryDecision> mine) const {
  if (!setting_.norm_group) return mine;
  const at::Tensor values = at::empty({static_cast<int64_t>(mine.size())}, at::kLong);
  auto* const numbers = values.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < mine.size(); ++i) numbers[i] = static_cast<int64_t>(mine[i]);
  setting_.norm_group->broadcast(values, 0);
  for (size_t i = 0; i < mine.size(); ++i) mine[i] = static_cast<plan::MemoryDecision>(numbers[i]);
  return mine;
}

ActivationMemory::Surroundings StepMemory::surroundings() const {
  if (!setting_.norm_group) return {};
  return [group = setting_.norm_group] { return std::make_shared<SyncBatchNorm>(group); };
}

at::Tensor StepMemory::output_of(const Batch& pass) {
  return is_ready_ ? memory_.output_of(pass, surroundings())
                   : trireme::output_of(setting_.model, pass);
}

at::Tensor StepMemory::loss_of(const Batch& pass) {
  const auto loss = [&](const at::Tensor& output) { return setting_.loss(output, pass); };
  if (is_ready_) {
    const at::Tensor output = memory_.output_of(pass, surroundings());
    return memory_.keep("the loss", pass, [&] { return loss(output); });
  }
  const auto whole = [&] { return loss(trireme::output_of(setting_.model, pass)); };
  // The first step tells how much the others hold too, so that they need not be counted.
  return steps_ == 1 ? memory_.keep("the model", pass, whole) : whole();
}

MemoryUse StepMemory::use() const {
  MemoryUse use;
  use.activation_bytes = memory_.bytes().peak();
  if (plan_) use.predicted_activation_bytes = plan_->peak_bytes;
  for (const at::Tensor& parameter : setting_.model.module->parameters())
    use.parameter_bytes += static_cast<int64_t>(parameter.nbytes());
  return use;
}

}  // namespace trireme
