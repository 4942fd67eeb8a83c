// The rows of the parameters that one rank of the data axis owns, as the optimizer sees them.
#pragma once
#include <trireme/parallel/mesh/parameter_keeper.h>
#include <trireme/plan/row_shards.h>
#include <trireme/tensor/master_weights.h>
#include <functional>
#include <vector>

namespace trireme {

class OwnRows {
 public:
  // Calls its argument once for each parameter, while that has its values.
  using EachInTurn = std::function<void(const std::function<void(size_t parameter)>& take)>;

  // The rows of divided parameters lie in memory of their own if there is `in_turn`, and are taken
  // then; otherwise they are views of the parameters. A parameter that is not divided is its own
  // rows.
  OwnRows(const std::vector<OwnTensor>& parameters, const plan::RowShards& shards, int rank,
          const EachInTurn& in_turn);

  // [parameter]: its own rows, in its type, as a slice of the whole tensor. A parameter that is
  // not divided counts on the first rank alone.
  const std::vector<OwnTensor>& parts() const { return parts_; }
  // The place of the parameter's own rows among all of its rows.
  int64_t first_row(size_t parameter) const { return first_rows_[parameter]; }
  // [parameter]: the tensors that the optimizer updates: the parts, or their float32 masters.
  const std::vector<NamedTensor>& updated() const { return updated_; }
  const MasterWeights& masters() const { return masters_; }

 private:
  const std::vector<OwnTensor> parts_;
  std::vector<int64_t> first_rows_;
  const MasterWeights masters_;
  std::vector<NamedTensor> updated_;
};

}  // namespace trireme
