// An exchange whose result does not depend on the number of ranks: the global batch is cut into
// virtual shards, whose gradients and losses are kept apart and added up by a tree of fixed order
// (plan/shard_tree.h), whoever computed them. With the same threads per rank and the same kind of
// processor every world size ends with the same bits.
//
// Each rank adds up the subtrees of its own shards while it computes them. What is left travels by
// ranges of elements: each rank gets all nodes of its range, adds them in the tree's order and
// hands out the sum. Loss, norm, clipping and update are computed alike on every rank from what is
// the same on all.
#pragma once
#include <trireme/parallel/exchange.h>
#include <trireme/parallel/step_facts.h>
#include <trireme/plan/shard_tree.h>
#include <map>

namespace trireme {

class ReproducibleExchange : public Exchange {
 public:
  // Throws Error(invalid_argument) if shards are below 1 or gradients are to be compressed.
  // Remembers the calling thread's number of threads, which must stay: operators add in another
  // order with another number.
  ReproducibleExchange(std::shared_ptr<Group> group, std::vector<NamedTensor> parameters,
                       ExchangeOptions options, int virtual_shards);

  plan::ShardRange shards() const { return tree_.ranks[static_cast<size_t>(group_->rank())].own; }
  // What .grad has is the gradient of this rank's next shard, in order; leaves it undefined.
  // `of_shard`: its loss and samples, possibly 0. Throws Error(invalid_argument) beyond the last
  // one.
  void end_shard(const Contribution& of_shard);

  // As Exchange says; loss and samples are those of the shards, not of `mine`. Throws
  // Error(invalid_argument) if a shard is missing.
  StepOutcome exchange(const Contribution& mine, const Update& update) override;
  // Shards and threads. load_counters() throws Error(invalid_argument) where a checkpoint has
  // others.
  Json counters() const override;
  void load_counters(const Json& counters) override;

 private:
  using Flats = std::vector<at::Tensor>;  // One a bucket.
  struct Travel;

  Flats take_flats();
  void add(const plan::ShardSum& sum);
  StepOutcome share_facts(const Contribution& mine);
  double sum_of_losses(const double* losses) const;
  int64_t reduce();
  Travel send(size_t bucket);
  void combine(size_t bucket, Travel& travel);
  int64_t range_of(size_t bucket) const;
  void clear();

  std::shared_ptr<Group> group_;
  std::vector<NamedTensor> parameters_;
  ExchangeOptions options_;
  StepFacts facts_;
  plan::ShardTree tree_;
  int threads_;
  plan::BucketPlan plan_;
  std::vector<int> trainable_;
  Flats reduced_;            // Where the sums arrive.
  std::vector<Flats> free_;  // Memory of nodes that were added to others.
  // Of the step under way.
  int next_shard_ = 0;
  size_t next_sum_ = 0;
  std::map<int, Flats> nodes_;  // By first shard.
  std::vector<Contribution> shards_;
  std::vector<bool> used_;
  bool weighted_ = false;
};

}  // namespace trireme
