#include <fmt/format.h>
#include <torch/optim/optimizer.h>

#include <trireme/base/error.h>
#include <trireme/parallel/mesh/mesh_rules.h>

namespace trireme {
namespace {

[[noreturn]] void refuse_mesh(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::unsupported, "parallel", what, remedy);
}

}  // namespace

void check_shards(int level, const plan::PipelinePlan& pipeline, const std::string& tied,
                  const std::string& summed) {
  if (level > 0 && !tied.empty())
    refuse_mesh(fmt::format("'{}' is on several stages, and shard.level {} divides it there in "
                            "different ways",
                            tied, level),
                "shard.level 0, or a model without tied weights");
  if (level > 1 && !summed.empty())
    refuse_mesh(fmt::format("the ranks of mesh.tensor add up the gradients of '{}', which "
                            "shard.level {} has divided before",
                            summed, level),
                "shard.level 0 or 1");
  if (level > 1 && pipeline.splits_backward())
    refuse_mesh(fmt::format("pipeline.schedule computes gradients of weights later than backward "
                            "leaves a block, where shard.level {} reduces them",
                            level),
                "pipeline.schedule=1f1b, or shard.level 1");
}

void check_divided_update(const torch::optim::Optimizer& optimizer) {
  const std::string kind = kind_of(optimizer);
  if (kind == "Lars" || kind == "Lamb")
    refuse_mesh(fmt::format("a step of {} needs the norms of whole layers, and mesh.tensor "
                            "divides them",
                            kind),
                "mesh.tensor=1, or the optimizer SGD, Adam, AdamW, RMSprop or Adagrad");
}

}  // namespace trireme
