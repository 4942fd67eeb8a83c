// The costs of a model's blocks, by which an engine cuts the model and plans its memory.
#pragma once
#include <trireme/parallel/engine.h>
#include <trireme/parallel/mesh/stage.h>
#include <trireme/plan/partition.h>
#include <trireme/plan/pipeline_memory.h>
#include <vector>

namespace trireme {

// Whether an engine has to measure its blocks before it begins. A rank with the whole model whose
// micro-batches follow each other holds what the first of them does, and learns that from it.
bool must_be_measured(const EngineSetting& setting, const plan::PipelinePlan& pipeline);

// COLLECTIVE over all ranks, before layers are divided and before ranks give tensors away. Rank 0
// measures the blocks on the first micro-batch of setting.sample, and all ranks get its figures,
// so that they cut alike. If that fails, all end with its error. Only one block at a time has
// memory, with values of no meaning; afterwards it is hollow again, and random numbers are where
// they were. Layers that the mesh will divide are measured as the first rank of the tensor axis
// will have them. Empty if there is no sample. Times are measured if the cut asks for them. A
// failure is a warning if nothing but predictions needs it.
plan::MeasuredChain measured_blocks(const EngineSetting& setting, const std::vector<Block>& blocks,
                                    const plan::PipelinePlan& pipeline);

// Costs that are not known are 0. `forms` are those of the whole parameters, `measured` may be
// empty.
std::vector<plan::BlockCost> costs_of(const EngineSetting& setting,
                                      const std::vector<Block>& blocks,
                                      const std::vector<BlockTensors>& tensors,
                                      const std::vector<plan::TensorSpec>& forms,
                                      const plan::MeasuredChain& measured);

}  // namespace trireme
