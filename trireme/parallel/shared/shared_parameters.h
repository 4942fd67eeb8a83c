// The one copy of the parameters and of the optimizer's state that all ranks of a host have. Their
// tensors lie in shared memory, and each rank watches a part of them for writes of user code.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/comm/host/host_team.h>
#include <trireme/parallel/fused/fused_optimizer.h>
#include <trireme/parallel/module_state.h>
#include <trireme/parallel/parameter_changes.h>
#include <trireme/parallel/shared/content_watch.h>
#include <trireme/parallel/shared/model_memory.h>
#include <trireme/plan/engine_plan.h>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace trireme::shared {

// The elements that are reduced and updated at once. With momentum, a run's values fill a quarter
// of a small second-level cache, and the reduced gradient stays in the first-level cache.
inline constexpr int64_t kRun = 4096;
inline constexpr int kMostStates = 3;  // No fused optimizer has more state tensors.

// One rank's view; one thread uses it. It keeps references to its arguments.
class SharedParameters {
 public:
  // COLLECTIVE over the team. Takes the memory; move_in() fills it. `rank` is this rank's number
  // in the job.
  SharedParameters(std::shared_ptr<comm::HostTeam> team, std::vector<NamedTensor>& parameters,
                   fused::FusedOptimizer& optimizer, const plan::EnginePlan& plan,
                   const OffloadOptions& offload, int rank);
  // COLLECTIVE. The team's first rank brings the values. Then the modules and optimizers of all
  // ranks use the shared values.
  void move_in();
  // COLLECTIVE. After load_state() every rank's optimizer has its own state. The first rank's
  // becomes the common one.
  void adopt_state();
  // Makes the values of the team's first rank the shared ones, wherever they lie.
  void take_values();
  // Every rank's tensors use the shared values again.
  void come_home();

  int count() const { return static_cast<int>(parameters_.size()); }
  at::Tensor& tensor(int p) { return parameters_[static_cast<size_t>(p)].tensor; }
  const at::Tensor& tensor(int p) const { return parameters_[static_cast<size_t>(p)].tensor; }
  // A parameter as it was when the engine was made.
  const plan::TensorSpec& spec(int p) const { return plan_.parameters[static_cast<size_t>(p)]; }
  at::ScalarType type_of(int p) const {
    return spec(p).dtype == plan::DType::float64 ? at::kDouble : at::kFloat;
  }
  at::Tensor shared_view(int p) const {
    return memory_.view(layout_.parameters[static_cast<size_t>(p)], tensor(p));
  }
  // The shard of a rank of the team.
  const std::vector<plan::Slice>& shard_of(int place) const {
    return plan_.shards.ranks[static_cast<size_t>(team_ranks_[static_cast<size_t>(place)])];
  }
  const std::vector<plan::Slice>& shard() const { return shard_of(team_->rank()); }
  // The memory that the update of a run writes: a part of the parameter and of each state tensor.
  std::span<const std::span<std::byte>> written_by(const fused::Range& range,
                                                   std::span<std::span<std::byte>> regions) const;

  // The update has used a range; ranges come in the order of the layout. leave(): nothing is used
  // until the next forward. Both matter where the memory is in files.
  void used(const fused::Range& range) {
    memory_.used(range, static_cast<size_t>(tensor(range.parameter).element_size()));
  }
  void leave() { memory_.leave(); }
  std::vector<Block> paged(const std::vector<Block>& blocks) { return memory_.paged(blocks); }

  // This rank watches its shard of the parameters that the optimizer has, and its part of all
  // others. Called again when the optimizer's groups have changed.
  void watch_contents();
  void remember_contents();
  void remember_versions();
  ContentWatch& contents() { return *contents_; }
  // Looks for changes that user code made, in all that this rank watches.
  ParameterChange find_change() const;
  // The same before a step, at little cost. The update, or the reduction between hosts, compares
  // what the optimizer has.
  ParameterChange find_change_of_step();

 private:
  bool is_at_home(int p) const;
  void place_state(bool copy);
  ParameterChange find_visible_change() const;

  std::shared_ptr<comm::HostTeam> team_;
  std::vector<NamedTensor>& parameters_;
  fused::FusedOptimizer& optimizer_;
  const plan::EnginePlan& plan_;
  const plan::SharedLayout& layout_;
  const std::vector<int>& team_ranks_;  // By place in the team.
  ModelMemory memory_;
  std::vector<int64_t> versions_;
  // The watch of this rank's shard of what the optimizer has, and that of its part of the rest.
  std::unique_ptr<ContentWatch> contents_, resting_contents_;
};

}  // namespace trireme::shared
