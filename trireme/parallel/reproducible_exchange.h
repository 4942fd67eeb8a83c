// An exchange whose result does not depend on the number of ranks. The global batch is cut into
// virtual shards. Their gradients and losses are kept apart and added up by a tree of fixed order
// (plan/shard_tree.h), on whichever rank they were computed. With the same threads per rank and
// the same kind of processor, every world size ends with the same bits.
//
// Each rank adds up the subtrees of its own shards while it computes them. The remaining nodes
// travel by ranges of elements: each rank gets all nodes of its range, adds them in the tree's
// order and hands out the sum. Every rank computes loss, norm, clipping and update in the same way
// from values that are the same on all ranks.
#pragma once
#include <trireme/parallel/exchange.h>
#include <trireme/parallel/step_facts.h>
#include <trireme/plan/shard_tree.h>
#include <map>

namespace trireme {

class ReproducibleExchange : public Exchange {
 public:
  // `plan` has a shard tree. Remembers the calling thread's number of threads, which must not
  // change: with another number, operators add in another order.
  ReproducibleExchange(std::shared_ptr<Group> group, std::vector<NamedTensor> parameters,
                       const plan::EnginePlan& plan, ExchangeOptions options);

  plan::ShardRange shards() const { return tree_.ranks[static_cast<size_t>(group_->rank())].own; }
  // Takes .grad as the gradient of this rank's next shard, in order, and leaves it undefined.
  // `of_shard` has the shard's loss and samples, possibly 0. Throws Error(invalid_argument) after
  // the last shard.
  void end_shard(const Contribution& of_shard);

  // See Exchange. Loss and samples are those of the shards, not of `mine`. Throws
  // Error(invalid_argument) if a shard is missing.
  StepOutcome exchange(const Contribution& mine, const Update& update) override;
  // The numbers of shards and threads. load_counters() throws Error(invalid_argument) if a
  // checkpoint has others.
  Json counters() const override;
  void load_counters(const Json& counters) override;

 private:
  using Flats = std::vector<at::Tensor>;  // One tensor for each bucket.
  struct Travel;

  at::TensorOptions options_of(const plan::Bucket& bucket) const;
  Flats take_flats();
  void add(const plan::ShardSum& sum);
  StepOutcome sum_facts(const Contribution& mine);
  double sum_of_losses(const double* losses) const;
  void reduce();
  Travel send(size_t bucket);
  void combine(size_t bucket, Travel& travel);
  void clear();

  std::shared_ptr<Group> group_;
  std::vector<NamedTensor> parameters_;
  ExchangeOptions options_;
  StepFacts facts_;
  plan::ShardTree tree_;
  int threads_;
  plan::BucketPlan plan_;
  std::vector<int64_t> ranges_;  // By bucket: the elements that each rank adds up.
  std::vector<int> trainable_;
  Flats reduced_;            // The reduced gradients.
  std::vector<Flats> free_;  // The memory of nodes that were added to others.
  // The state of the current step follows.
  int next_shard_ = 0;
  size_t next_sum_ = 0;
  std::map<int, Flats> nodes_;  // The nodes by their first shard.
  std::vector<Contribution> shards_;
  std::vector<bool> used_;
  bool weighted_ = false;
};

}  // namespace trireme
