// Plans the data-parallel engine. The functions are pure.
#pragma once
#include <trireme/config/rows.h>
#include <trireme/plan/compression_plan.h>
#include <trireme/plan/division.h>
#include <trireme/plan/engine_plan.h>
#include <trireme/plan/partition.h>
#include <trireme/plan/ps_options.h>
#include <optional>
#include <vector>

namespace trireme::plan {

struct LocalSgdOptions {
  int64_t steps = 1;      // The steps between two averagings; with 1 replicas are never apart.
  int64_t after = 0;      // Gradients are reduced in each step up to this one.
  bool momentum = false;  // The optimizer's state is averaged with the parameters.
};
config::Rows rows_of(const LocalSgdOptions*);

// Everything that the plan depends on.
struct DataParallelFacts {
  Placement placement;
  std::optional<DataPlanOptions> data;
  // The tensors that are reduced and updated, with the types in which this happens.
  std::vector<TensorSpec> parameters;
  // By parameter: the state tensors of its optimizer, at most 3. Empty if the optimizer's update
  // cannot run on memory that ranks share.
  std::vector<int> state_tensors;
  bool share_parameters = false;  // Wanted, and possible for these tensors.
  // The loop updates itself (parallel/own_steps.h), and the ranks of a host can add up these
  // gradients where they lie.
  bool leaves_means = false;
  BucketOptions buckets;
  std::vector<int> ready_order;  // Empty before the first step.
  CompressionOptions compression;
  LocalSgdOptions local;
  int virtual_shards = 0;
  DivisionOptions division;
  std::vector<BlockCost> blocks;  // The blocks of the model; empty if it names none.
  // For a mesh. [block]: the parameters that it uses, of those above. And [parameter]: the type in
  // which ranks keep it.
  std::vector<std::vector<int>> block_parameters;
  std::vector<DType> kept_types;
  // The level at which the replicas of a mesh divide their state (ShardOptions::level, resolved).
  int shard_level = 0;
  PsOptions ps;  // For strategy parameter_server.
};

// The number of facts of a step: a few numbers, four for each rank, one for each parameter
// (parallel/step_facts.h).
int64_t facts_of_step(int ranks, size_t parameters);

// Throws Error(invalid_argument) naming a size of buckets that is not positive, or two options
// that exclude each other; Error(internal) if the placement is not one, or there is not one number
// of state tensors for each parameter.
EnginePlan plan_data_parallel(const DataParallelFacts& facts);

}  // namespace trireme::plan
