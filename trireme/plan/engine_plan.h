// The plan of an engine: everything that its ranks do in a step, as one value. The engine runs
// exactly this value, `trireme plan` prints it, and ranks compare its digest. The functions are
// pure.
#pragma once
#include <trireme/base/json.h>
#include <trireme/plan/bucket_plan.h>
#include <trireme/plan/data_plan.h>
#include <trireme/plan/division.h>
#include <trireme/plan/mesh.h>
#include <trireme/plan/operation.h>
#include <trireme/plan/partition.h>
#include <trireme/plan/pipeline_plan.h>
#include <trireme/plan/placement.h>
#include <trireme/plan/placement_plan.h>
#include <trireme/plan/row_shards.h>
#include <trireme/plan/shard_plan.h>
#include <trireme/plan/shard_tree.h>
#include <trireme/plan/shared_layout.h>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trireme::plan {

// The way in which gradients become an update.
enum class ExchangeKind {
  all_reduce,    // Every rank reduces and updates its own copy.
  shared,        // The ranks of a host have one copy, and each updates its shard of it.
  host_means,    // The ranks of a host add up gradients in place, and each updates its own copy.
  reproducible,  // Virtual shards are added up in a fixed order, and every rank updates its copy.
  local_steps,   // Every rank takes steps of its own, and copies are averaged now and then.
  servers,       // Servers have the parameters, add up and update; ranks pull what they need.
  own,           // The way of an engine from outside, which the plan does not describe.
};
std::string_view to_string(ExchangeKind kind);

// One tensor that the all-reduce exchange sends in each step.
struct Message {
  int bucket = -1;  // -1: only the facts of the step.
  DType dtype = DType::float32;
  int64_t elements = 0;  // With the facts.
  int64_t facts = 0;     // The number of facts behind the gradients.
};

// The engine of plan_mesh(). Its ranks have parts of the model or of its state.
inline constexpr const char* kMeshEngine = "mesh";

// The parameters of one stage of a mesh, and the way in which its replicas exchange their
// gradients.
struct StageParameters {
  std::vector<int> params;               // In ascending order.
  std::vector<TensorSpec> kept;          // The same, as ranks keep them.
  std::vector<std::vector<int>> blocks;  // [block of the stage]: places in `params`.
  BucketPlan buckets;                    // Copies are reduced in these.
  std::optional<RowShards> rows;         // From level 1 on.
};

struct EnginePlan {
  std::string engine = "data_parallel";
  ExchangeKind exchange = ExchangeKind::all_reduce;
  Mesh mesh = Mesh({{"data", 1}});
  Placement placement;
  std::optional<DataPlanOptions> data;  // Empty for a training loop of the user's own.
  std::vector<TensorSpec> parameters;   // As they are reduced and updated.
  ShardPlan shards;
  // With ExchangeKind::shared and host_means; the latter has no state there.
  std::optional<SharedLayout> layout;
  BucketPlan buckets;
  // The buckets of this plan hold for an engine's start: once the first step has shown in which
  // order gradients become ready, the engine plans them anew in that order.
  bool follows_ready_order = false;
  std::vector<Message> messages;  // With more than one rank, where gradients are all-reduced.
  int64_t facts = 0;              // The numbers that the ranks add up besides gradients.
  std::optional<PipelinePlan> pipeline;  // Only kMeshEngine has it.
  std::optional<Partition> cut;          // The blocks of its parts.
  int shard_level = 0;                   // With replicas on the data axis.
  // By stage. Empty if a tensor axis divides layers: then only the layers know the parts of their
  // parameters.
  std::vector<StageParameters> stages;
  std::optional<ShardTree> shard_tree;  // With ExchangeKind::reproducible.
  // By bucket, with ExchangeKind::reproducible: the elements of the range that each rank adds up.
  std::vector<int64_t> ranges;
  std::optional<PlacementPlan> servers;  // With ExchangeKind::servers.
  std::string compression = "none";
  std::vector<Operation> operations;
  // False if an engine from outside or a registered compressor sends gradients, an optimizer that
  // is not known has state to be averaged, or activations travel, whose shapes are those of the
  // data: `operations` then lacks these.
  bool knows_all_operations = true;

  int ranks() const { return placement.ranks(); }
  int replicas() const;  // Each computes a share of every batch.
  // The operations of a rank in the first `steps` steps, and the bytes that it sends in them.
  int64_t operations_of(int rank, int64_t steps) const;
  int64_t bytes_sent_by(int rank, int64_t steps) const;

  // The parts of the plan, by name. Each part of two plans can be compared by its text.
  std::vector<std::pair<std::string, Json>> parts() const;
  Json to_json() const;
  // 16 hexadecimal digits: equal for equal plans.
  std::string digest() const;
  std::string describe() const;  // For people; `trireme plan` prints it.
};

// The plan of an engine from outside, in which every rank has a copy of the parameters.
EnginePlan plan_replicas(std::string engine, Placement placement,
                         std::vector<TensorSpec> parameters);

// Throws Error(internal) naming the part that breaks its promise: those of the plans inside; where
// gradients are all-reduced, that every bucket travels exactly once in a step; where they are
// added up in a fixed order, that the ranges cover every bucket; on a mesh, that the parameters of
// each stage are reduced once, and that all are on a stage.
void check(const EnginePlan& plan);

}  // namespace trireme::plan
