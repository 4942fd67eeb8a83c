#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <trireme/parallel/mesh/stage.h>
#include <algorithm>
#include <map>

namespace trireme {

bool Stage::is_tied(const std::string& parameter) const {
  return std::ranges::find(tied, parameter, &TiedParameter::name) != tied.end();
}

bool Stage::counts(const std::string& parameter, int stage) const {
  const auto found = std::ranges::find(tied, parameter, &TiedParameter::name);
  return found == tied.end() || found->stages.front() == stage;
}

void Stage::add_blocks_to(ParameterKeeperSetting& keeper, size_t first_trained) const {
  for (const PipelinePart& part : parts) {
    keeper.blocks.insert(keeper.blocks.end(), part.blocks.begin(), part.blocks.end());
    for (size_t i = 0; i < part.blocks.size(); ++i) {
      const size_t block = static_cast<size_t>(part.first_block) + i;
      keeper.enters_backward.push_back(block >= first_trained);
      keeper.leaves_backward.push_back(block > first_trained);
    }
  }
}

void Stage::take_blocks(const std::vector<Block>& blocks) {
  auto next = blocks.begin();
  for (PipelinePart& part : parts) {
    const auto count = std::ssize(part.blocks);
    part.first_own = static_cast<size_t>(next - blocks.begin());
    part.blocks.assign(next, next + count);
    next += count;
  }
}

std::vector<BlockTensors> tensors_by_block(const std::vector<Block>& blocks,
                                           const ModuleState& whole) {
  std::map<const void*, std::string> names;
  for (const auto* const tensors : {&whole.parameters, &whole.buffers})
    for (const auto& [name, tensor] : *tensors) names.emplace(tensor.unsafeGetTensorImpl(), name);
  std::vector<BlockTensors> all;
  for (const Block& block : blocks) {
    BlockTensors& own = all.emplace_back();
    for (const auto& module : block.modules) {
      const ModuleState state = state_of(*module);
      for (const auto& [name, tensor] : state.parameters)
        own.parameters.insert(names.at(tensor.unsafeGetTensorImpl()));
      for (const auto& [name, tensor] : state.buffers)
        own.buffers.insert(names.at(tensor.unsafeGetTensorImpl()));
    }
  }
  return all;
}

Stage stage_of(const std::vector<Block>& blocks, const std::vector<BlockTensors>& tensors,
               const plan::Partition& cut, const plan::PipelinePlan& plan, int stage) {
  Stage own;
  std::map<std::string, std::set<int>> stages_of_parameter;
  for (int part = 0; part < plan.parts(); ++part) {
    const auto [first, last] = cut.blocks_of(part);
    const bool is_own = plan.stage_of(part) == stage;
    for (int block = first; block < last; ++block) {
      const BlockTensors& of_block = tensors[static_cast<size_t>(block)];
      for (const auto* const names : {&of_block.parameters, &of_block.buffers})
        for (const std::string& name : *names) {
          int& first_stage = own.first_stages.emplace(name, plan.stage_of(part)).first->second;
          first_stage = std::min(first_stage, plan.stage_of(part));
        }
      for (const std::string& name : of_block.parameters)
        stages_of_parameter[name].insert(plan.stage_of(part));
      if (!is_own) continue;
      own.parameters.insert(of_block.parameters.begin(), of_block.parameters.end());
      own.buffers.insert(of_block.buffers.begin(), of_block.buffers.end());
    }
    if (is_own)
      own.parts.push_back({.number = part,
                           .first_block = first,
                           .blocks = {blocks.begin() + first, blocks.begin() + last}});
  }
  for (const auto& [name, stages] : stages_of_parameter)
    if (stages.size() > 1) own.tied.push_back({name, {stages.begin(), stages.end()}});
  return own;
}

}  // namespace trireme
