// The gradients of parameters that blocks of several stages have. Each of these stages keeps and
// updates a copy, or the same rows of it, so they add their gradients up before every update.
#pragma once
#include <trireme/comm/group.h>
#include <trireme/parallel/mesh/stage.h>
#include <trireme/parallel/module_state.h>
#include <memory>
#include <utility>
#include <vector>

namespace trireme {

class TiedGradients {
 public:
  // `stages` is the group along the pipeline, `own` what this rank updates.
  TiedGradients(std::shared_ptr<Group> stages, const std::vector<TiedParameter>& tied,
                const std::vector<NamedTensor>& own);
  // COLLECTIVE along the pipeline. The sum has the same order on every stage. A stage without a
  // gradient that others have contributes zeros.
  void add_up();

 private:
  std::shared_ptr<Group> stages_;
  std::vector<std::pair<at::Tensor, std::vector<int>>> tied_;  // Those of this stage.
};

}  // namespace trireme
