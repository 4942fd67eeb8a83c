// The part of a model that one rank of a mesh computes: its blocks and their tensors.
#pragma once
#include <trireme/parallel/mesh/parameter_keeper.h>
#include <trireme/parallel/model.h>
#include <trireme/parallel/module_state.h>
#include <trireme/parallel/pipeline/pipeline_runner.h>
#include <trireme/plan/partition.h>
#include <trireme/plan/pipeline_plan.h>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace trireme {

// A parameter that blocks of several stages have, such as an embedding that is the head as well.
struct TiedParameter {
  std::string name;
  std::vector<int> stages;  // In order. The first one counts it.
};

struct Stage {
  std::vector<PipelinePart> parts;
  std::set<std::string> parameters, buffers;  // The names of those of the parts.
  std::vector<TiedParameter> tied;            // Those of all stages.
  std::map<std::string, int> first_stages;    // [name]: the first stage that has the tensor.

  bool is_tied(const std::string& parameter) const;
  bool counts(const std::string& parameter, int stage) const;

  // The blocks of the parts, one after another, for a keeper. `first_trained` is the first block
  // of the whole model with a parameter that is trained. And: the same blocks, as the keeper wants
  // them to run.
  void add_blocks_to(ParameterKeeperSetting& keeper, size_t first_trained) const;
  void take_blocks(const std::vector<Block>& blocks);
};

// By block: the names of its parameters and buffers in the whole model. A tied tensor has its
// first name.
struct BlockTensors {
  std::set<std::string> parameters, buffers;
};
std::vector<BlockTensors> tensors_by_block(const std::vector<Block>& blocks,
                                           const ModuleState& whole);

Stage stage_of(const std::vector<Block>& blocks, const std::vector<BlockTensors>& tensors,
               const plan::Partition& cut, const plan::PipelinePlan& plan, int stage);

}  // namespace trireme
