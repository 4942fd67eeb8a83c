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

void check_divided_update(const torch::optim::Optimizer& optimizer) {
  const std::string kind = kind_of(optimizer);
  if (kind == "Lars" || kind == "Lamb")
    refuse_mesh(fmt::format("a step of {} needs the norms of whole layers, and mesh.tensor "
                            "divides them",
                            kind),
                "mesh.tensor=1, or the optimizer SGD, Adam, AdamW, RMSprop or Adagrad");
}

}  // namespace trireme
