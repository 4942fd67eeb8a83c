// The messages in which rows travel between the ranks of the data axis: gradients to the owner of
// each row, and parameters from it.
#pragma once
#include <trireme/comm/group.h>
#include <trireme/parallel/mesh/own_rows.h>
#include <trireme/parallel/offloaded_model.h>
#include <map>
#include <memory>
#include <vector>

namespace trireme {

// Used by one thread. Everything that starts a message is COLLECTIVE along the data axis.
class RowMessages {
 public:
  // `parameters` and `own` have the same order as those of `shards`. `files` is null if none of
  // their tensors is in a file. All outlive the object.
  RowMessages(std::shared_ptr<Group> replicas, const std::vector<OwnTensor>& parameters,
              const OwnRows& own, const plan::RowShards& shards, OffloadedModel* files);

  // Takes the gradients of a unit off its parameters, and starts to add them up over the ranks in
  // the type of what the optimizer updates. A parameter without a gradient contributes zeros.
  void start_reduction(size_t unit);
  // Adds the sums of all reductions that were started to the gradients of the own rows.
  void finish_reductions();

  // A unit is fetched soon: its own rows come from their file meanwhile.
  void expect_gathering(size_t unit) const;
  // Starts to fetch the rows of all ranks into the parameters of a unit.
  void start_gathering(size_t unit);
  void finish_gathering(size_t unit);

  // Whether this rank had a gradient for a parameter in a reduction since the last drop().
  bool had_gradient(size_t parameter) const { return had_gradient_[parameter]; }
  // Forgets gradients and messages, also those of a step that was abandoned. Waits for operations
  // in progress.
  void drop();

 private:
  struct Message {
    at::Tensor input, output;  // One block, or one block for each rank.
    WorkPtr work;
  };
  struct Reduction {
    size_t unit;
    Message message;
  };
  at::Tensor gradient_of(const plan::RowUnit& unit, int param) const;
  at::Tensor packed_gradients(const plan::RowUnit& unit) const;
  void add_to_own_rows(const plan::RowUnit& unit, const at::Tensor& sums) const;
  at::Tensor packed_rows(const plan::RowUnit& unit) const;
  // The place of params[i] of the unit in the block of a rank, in the form of its rows.
  at::Tensor place(const plan::RowUnit& unit, const at::Tensor& block, size_t i,
                   size_t rank) const;

  const std::shared_ptr<Group> replicas_;
  const OwnRows& own_;
  const plan::RowShards& shards_;
  OffloadedModel* const files_;
  const std::vector<at::Tensor> parameters_;
  // The parameters' memory under versions of their own: what is fetched into it is what autograd
  // has saved.
  std::vector<at::Tensor> memory_;
  std::vector<bool> had_gradient_;
  std::vector<Reduction> reductions_;
  std::map<size_t, Message> gatherings_;  // By unit.
};

}  // namespace trireme
