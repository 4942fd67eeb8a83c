#include <ATen/core/Tensor.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <trireme/base/log.h>
#include <trireme/base/units.h>
#include <trireme/parallel/activation_measure.h>
#include <trireme/parallel/agreement.h>
#include <trireme/parallel/step_memory.h>
#include <trireme/parallel/sync_batch_norm.h>
#include <algorithm>
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
  Json operations = Json::array();  // Decisions say the same, unless the plan is nested.
  if (plan.is_nested)
    for (const plan::MemoryOperation& each : plan.operations)
      operations.push_back({static_cast<int>(each.kind), each.block});
  return {{"decisions", std::move(decisions)},
          {"operations", std::move(operations)},
          {"read_from", plan.read_from()},
          {"peak_bytes", plan.peak_bytes},
          {"slowdown", plan.slowdown()}};
}

// "; block 'layer0' runs forward up to 4 times", for a nested plan.
std::string most_runs_as_text(const std::vector<plan::MemoryOperation>& operations,
                              const std::vector<Block>& blocks) {
  std::vector<int> runs(blocks.size());
  for (const plan::MemoryOperation& each : operations)
    if (plan::is_forward(each.kind)) ++runs[static_cast<size_t>(each.block)];
  const auto most = std::ranges::max_element(runs);
  if (operations.empty() || *most <= 2) return {};
  return fmt::format("; block '{}' runs forward {} times",
                     blocks[static_cast<size_t>(most - runs.begin())].name, *most);
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
  predicted_slowdown_ = plan["slowdown"];
  SwapOptions swap;
  swap.folder = setting_.memory.swap_dir;
  swap.limit_bytes = predicted_bytes_;
  swap.read_from = plan["read_from"].get<std::vector<int>>();
  std::vector<plan::MemoryOperation> operations;
  for (const Json& operation : plan["operations"])
    operations.push_back(
        {static_cast<plan::MemoryKind>(operation[0].get<int>()), operation[1].get<int>()});
  memory_.decide(decisions, swap, operations);
  if (setting_.group->rank() == 0)
    log_info(
        "memory.policy {}: activations take {} at most, and the blocks {:.2f}x their time; "
        "blocks: {}{}",
        setting_.memory.policy, format_bytes(predicted_bytes_), predicted_slowdown_,
        counts_as_text(decisions), most_runs_as_text(operations, memory_.blocks()));
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
  plan::MemoryPlanOptions options = memory_plan_options(setting_.memory);
  options.can_nest = true;
  return plan::plan_memory(std::move(measures), options);
}

plan::MemoryPlanOptions memory_plan_options(const MemoryOptions& asked) {
  plan::MemoryPlanOptions options;
  options.policy = asked.policy;
  options.budget_bytes = asked.budget;
  options.rules = parse_memory_rules(asked.rules);
  options.can_nest = false;          // A stage's blocks run forward at most twice.
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
    const auto held = memory_.hold({output}, pass);  // The loss has both.
    return memory_.keep("the loss", pass, [&] { return loss(output); });
  }
  const auto whole = [&] { return loss(trireme::output_of(setting_.model, pass)); };
  // The first step tells how much the others hold too, so that they need not be counted.
  if (steps_ > 1) return whole();
  const at::Tensor result = memory_.keep("the model", pass, whole);
  if (predicted_bytes_ == 0) predicted_bytes_ = memory_.bytes().current();
  return result;
}

MemoryUse StepMemory::use() const {
  MemoryUse use;
  use.activation_bytes = memory_.bytes().peak();
  use.predicted_activation_bytes = predicted_bytes_;
  use.predicted_slowdown = predicted_slowdown_;
  for (const at::Tensor& parameter : setting_.model.module->parameters())
    use.parameter_bytes += static_cast<int64_t>(parameter.nbytes());
  return use;
}

}  // namespace trireme
