#include <ATen/core/Tensor.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <trireme/base/log.h>
#include <trireme/base/units.h>
#include <trireme/parallel/activation_measure.h>
#include <trireme/parallel/agreement.h>
#include <trireme/parallel/step_memory.h>
#include <trireme/parallel/sync_batch_norm.h>
#include <map>
#include <string_view>
#include <utility>

namespace trireme {
namespace {

// Adds what the loss saves to the last block, because it is held together with that.
void add_loss(plan::BlockMemory& last, const plan::BlockMemory& loss) {
  last.saves_output = last.saves_output || loss.saves_input;
  const int64_t more = loss.inner_bytes + (loss.saves_output ? loss.output_bytes : 0);
  last.inner_bytes += more;
  last.still_bytes += more;  // The loss is kept whatever happens to the block.
}

Json told_plan(const plan::MemoryPlan& plan) {
  Json decisions = Json::array();
  for (const plan::BlockMemory& block : plan.blocks)
    decisions.push_back(static_cast<int>(block.decision));
  return {{"decisions", std::move(decisions)},
          {"read_from", plan.read_from()},
          {"peak_bytes", plan.peak_bytes}};
}

}  // namespace

std::string counts_as_text(const std::vector<plan::MemoryDecision>& decisions) {
  std::map<std::string_view, int> counts;
  for (const plan::MemoryDecision decision : decisions) ++counts[plan::to_string(decision)];
  std::vector<std::string> texts;
  for (const auto& [decision, count] : counts)
    texts.push_back(fmt::format("{} {}", count, decision));
  return fmt::format("{}", fmt::join(texts, ", "));
}

StepMemory::StepMemory(const EngineSetting& setting)
    : setting_(setting), memory_(setting.model, setting.random) {
  check(setting.memory);
}

void StepMemory::begin_step(const Batch& pass) {
  ++steps_;
  if (is_plain() || is_ready_) return;
  if (!setting_.norm_group) {
    if (pass.size() == 0) return;
    follow(told_plan(planned(pass)));
  } else {
    // Backwards of synchronised batch norms have to meet in the same order.
    follow(found_by_first(*setting_.norm_group, [&] { return told_plan(planned(pass)); }));
  }
  is_ready_ = true;
}

void StepMemory::follow(const Json& plan) {
  std::vector<plan::MemoryDecision> decisions;
  for (const Json& decision : plan["decisions"])
    decisions.push_back(static_cast<plan::MemoryDecision>(decision.get<int>()));
  predicted_bytes_ = plan["peak_bytes"];
  SwapOptions swap;
  swap.folder = setting_.memory.swap_dir;
  swap.limit_bytes = predicted_bytes_;
  swap.read_from = plan["read_from"].get<std::vector<int>>();
  memory_.decide(decisions, swap);
  if (setting_.group->rank() == 0)
    log_info("memory.policy {}: activations take {} at most; blocks: {}", setting_.memory.policy,
             format_bytes(predicted_bytes_), counts_as_text(decisions));
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
  return plan::plan_memory(std::move(measures), memory_plan_options(setting_.memory));
}

plan::MemoryPlanOptions memory_plan_options(const MemoryOptions& asked) {
  plan::MemoryPlanOptions options;
  options.policy = asked.policy;
  options.budget_bytes = asked.budget;
  options.rules = parse_memory_rules(asked.rules);
  options.can_nest = false;          // Blocks run forward at most twice.
  options.counts_gradients = false;  // The budget is that of activations.
  options.least_moved_bytes = kLeastMovedBytes;
  options.compressed_fraction = 0.5;
  options.compresses_by_rule_only = true;
  if (!asked.swap_dir.empty()) {
    const SwapSpeed speed = measure_swap(asked.swap_dir);
    options.out_bytes_per_second = speed.out_bytes_per_second;
    options.in_bytes_per_second = speed.in_bytes_per_second;
  }
  return options;
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
  use.predicted_activation_bytes = predicted_bytes_;
  for (const at::Tensor& parameter : setting_.model.module->parameters())
    use.parameter_bytes += static_cast<int64_t>(parameter.nbytes());
  return use;
}

}  // namespace trireme
