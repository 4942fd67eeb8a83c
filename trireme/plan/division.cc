#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/config/row.h>
#include <trireme/plan/division.h>
#include <algorithm>

namespace trireme::plan {
namespace {

constexpr int kMostOnAnAxis = 1 << 20;

}  // namespace

config::Rows rows_of(const MeshOptions*) {
  using O = MeshOptions;
  return config::all_of<O>(
      {config::row(&O::data, {.name = "mesh.data",
                              .meaning = "Replicas of the model; auto: all ranks / "
                                         "(mesh.pipeline x mesh.tensor).",
                              .range = config::from_to(1, kMostOnAnAxis),
                              .automatic = 0}),
       config::row(&O::pipeline, {.name = "mesh.pipeline",
                                  .meaning = "Stages into which the model is cut, one after the "
                                             "other (docs/pipeline.md).",
                                  .range = config::from_to(1, kMostOnAnAxis)}),
       config::row(&O::tensor, {.name = "mesh.tensor",
                                .meaning = "Ranks that divide each layer among them "
                                           "(docs/sharding.md).",
                                .range = config::from_to(1, kMostOnAnAxis)})});
}

config::Rows rows_of(const PipelineOptions*) {
  using O = PipelineOptions;
  return config::all_of<O>(
      {config::row(&O::schedule,
                   {.name = "pipeline.schedule",
                    .meaning = "The order of forward and backward on the stages: naive, gpipe, "
                               "1f1b, interleaved, zbh1, zbh2, zbv, or an order of your own, "
                               "such as `0F0 0F1 0B0 0B1; 1F0 1B0 1F1 1B1`."}),
       config::row(&O::microbatches,
                   {.name = "pipeline.microbatches",
                    .meaning = "Parts into which each replica cuts its share of a batch, so that "
                               "the stages work at the same time; auto: four for each stage.",
                    .range = config::from_to(1, 1 << 16),
                    .automatic = 0}),
       config::row(&O::chunks,
                   {.name = "pipeline.chunks",
                    .meaning = "Parts of the model on each stage, for schedules that have "
                               "several; auto: as few as the schedule needs.",
                    .range = config::from_to(1, 1 << 10),
                    .automatic = 0}),
       config::row(&O::cut,
                   {.name = "pipeline.cut",
                    .meaning = "The places where the model is cut: the most even cut by "
                               "parameters, by time or by memory, for which the first rank "
                               "measures the blocks before training; auto, which is by time if "
                               "blocks can be measured; the names of the blocks that begin the "
                               "second and later parts, with commas; or the number of blocks in "
                               "each part, such as `3+3+2`."})});
}

config::Rows rows_of(const ShardOptions*) {
  using O = ShardOptions;
  return config::all_of<O>({config::row(
      &O::level, {.name = "shard.level",
                  .meaning = "State that the replicas of the model divide among them: 1 the "
                             "optimizer's, 2 also gradients, 3 also parameters; auto: 2 with "
                             "strategy sharded, otherwise none.",
                  .range = config::from_to(1, 3),
                  .automatic = 0})});
}

config::Rows rows_of(const DivisionOptions*) {
  using O = DivisionOptions;
  return config::all_of<O>(
      {config::part(&O::mesh), config::part(&O::pipeline), config::part(&O::shard)});
}

Mesh mesh_of(const MeshOptions& options, int ranks) {
  const int replicas = replicas_of(options, ranks);
  return Mesh(
      {{kDataAxis, replicas}, {kPipelineAxis, options.pipeline}, {kTensorAxis, options.tensor}});
}

int replicas_of(const MeshOptions& options, int ranks) {
  const int of_one = options.ranks_of_a_replica();
  const int replicas = options.data > 0 ? options.data : ranks / of_one;
  if (replicas > 0 && static_cast<int64_t>(replicas) * of_one == ranks) return replicas;
  const std::string wanted =
      options.data > 0 ? fmt::format("mesh.data {} x ", options.data) : std::string();
  const int fitting = std::max(replicas, 1) * of_one;
  throw Error(
      ErrorCode::invalid_argument, "config",
      fmt::format("{}mesh.pipeline {} x mesh.tensor {} = {} ranks, but there {} {}{}", wanted,
                  options.pipeline, options.tensor,
                  options.data > 0 ? options.data * of_one : of_one, ranks == 1 ? "is" : "are",
                  ranks, options.data > 0 ? "" : ", which is no multiple of it"),
      fmt::format("{} workers x replicas (--workers, strategy.replicas), or other sizes "
                  "of the mesh",
                  fitting));
}

}  // namespace trireme::plan
