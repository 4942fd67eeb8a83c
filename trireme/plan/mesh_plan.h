// Plans the engine of a mesh: replicas of the model x stages x ranks that divide layers. The
// functions are pure.
#pragma once
#include <trireme/plan/data_parallel_plan.h>
#include <trireme/plan/pipeline_plan.h>
#include <span>
#include <string>

namespace trireme::plan {

// The schedule of the stages. Throws Error(invalid_argument) naming the key if there is no such
// schedule or the numbers do not fit it.
PipelinePlan pipeline_of(const DivisionOptions& division);

// The blocks of each part, as pipeline.cut says. A cut by memory counts the micro-batches that the
// schedule holds. Throws Error(invalid_argument) naming the key, as partition() does.
Partition cut_of(const std::string& cut, const PipelinePlan& pipeline,
                 std::span<const BlockCost> blocks);
// Whether this pipeline.cut needs the costs of blocks that only a run can measure.
bool needs_measured_blocks(const std::string& cut);

// The level at which replicas divide their state: shard.level, or the one that the strategy has
// without it.
int shard_level_of(const std::string& strategy, const ShardOptions& options);
// Whether ranks may share one copy of parameters and optimizer state instead of dividing them: all
// are replicas on one host, and the level is at most 2. Sharing then needs no more memory.
bool may_share_instead(const DataParallelFacts& facts);
// The plan of strategy sharded, whose level is facts.shard_level: that of data parallelism if
// ranks share instead.
EnginePlan plan_sharded(const DataParallelFacts& facts);

// Throws Error(invalid_argument) if the mesh is not that of the ranks.
EnginePlan plan_mesh(const DataParallelFacts& facts);

}  // namespace trireme::plan
