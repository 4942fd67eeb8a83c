// The options of strategies that give each rank a part of the model or of its state: the mesh of
// the ranks, the pipeline, and the shards. No torch.
#pragma once
#include <trireme/config/rows.h>
#include <trireme/plan/mesh.h>
#include <string>

namespace trireme::plan {

// The names of the axes, in the order of the mesh. Ranks of one replica of the model are
// neighbours, so that they are on one host where that is possible.
inline constexpr const char* kDataAxis = "data";
inline constexpr const char* kPipelineAxis = "pipeline";
inline constexpr const char* kTensorAxis = "tensor";

struct MeshOptions {
  int data = 0;      // Replicas of the model; 0: as many as the ranks give.
  int pipeline = 1;  // Stages.
  int tensor = 1;    // Ranks that divide the layers of a stage among them.

  bool divides_model() const { return pipeline > 1 || tensor > 1; }
  int ranks_of_a_replica() const { return pipeline * tensor; }
};
config::Rows rows_of(const MeshOptions*);

struct PipelineOptions {
  // naive, gpipe, 1f1b, interleaved, zbh1, zbh2, zbv, or an order as text (pipeline_text.h).
  std::string schedule = "1f1b";
  // The micro-batches of a step in each replica; 0: four for each stage.
  int microbatches = 0;
  int chunks = 0;  // The parts of the model on each stage; 0: as many as the schedule needs.
  // The places where the model is cut: parameters, time or memory (the most even cut by these; the
  // last two measure the blocks before training), auto (by time where blocks can be measured, else
  // by parameters), the names of the blocks that begin the second and later parts, or the number
  // of blocks in each part.
  std::string cut = "parameters";
};
config::Rows rows_of(const PipelineOptions*);

struct ShardOptions {
  // The state that the ranks of the data axis divide among them (Rajbhandari et al. 2019, "ZeRO",
  // section 5): 0 none, 1 the optimizer's, 2 also gradients, 3 also parameters.
  int level = 0;
};
config::Rows rows_of(const ShardOptions*);

// How the model and its state are divided among the ranks.
struct DivisionOptions {
  MeshOptions mesh;
  PipelineOptions pipeline;
  ShardOptions shard;
};
config::Rows rows_of(const DivisionOptions*);

// The mesh of so many ranks. Throws Error(invalid_argument) that names the keys and the remedy if
// the axes do not multiply to that number.
Mesh mesh_of(const MeshOptions& options, int ranks);
// The number of replicas of the model, each of which computes its share of a batch. Throws as
// mesh_of() does.
int replicas_of(const MeshOptions& options, int ranks);

}  // namespace trireme::plan
