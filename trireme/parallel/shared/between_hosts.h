// Gradients of a host on their way to the other hosts: reduced over the host's ranks into buckets,
// which its first rank all-reduces with the first ranks of the other hosts (hierarchical
// all-reduce; Goyal et al. 2017, section 4), while backward runs where that is possible.
//
// In backward, the last of the host's ranks to complete a bucket reduces it, and the first rank
// sends it at its own next gradient. Buckets that were not complete on all ranks before the step
// are reduced by all ranks together, each its shard. All hosts send buckets in the plan's order, so
// how far each came in backward is its own business.
//
// Compression is between the hosts only: the first ranks have the compressors, and what these keep
// between steps.
#pragma once
#include <trireme/comm/group.h>
#include <trireme/comm/host/host_team.h>
#include <trireme/parallel/bucket_progress.h>
#include <trireme/parallel/compression/compressed_buckets.h>
#include <trireme/parallel/gradient_watch.h>
#include <functional>
#include <memory>
#include <vector>

namespace trireme::shared {

// One rank's. Used by the thread that calls backward and step.
class BetweenHosts {
 public:
  struct Actions {
    std::function<void(int parameter)>
        publish;  // The other ranks of the host can read this rank's gradient from now on.
    std::function<void(int parameter)>
        reduce;  // Adds all ranks' gradients of a parameter up, into reduced().
  };
  // COLLECTIVE over all ranks. `parameters` must outlive it.
  BetweenHosts(std::shared_ptr<Group> group, const std::vector<NamedTensor>& parameters,
               const plan::BucketOptions& options, const CompressionOptions& compression,
               Actions actions);

  std::byte* reduced(int parameter) const {
    return memory_->data() + place_[static_cast<size_t>(parameter)];
  }
  bool is_published(int parameter) const { return progress_.is_ready(parameter); }
  bool compresses() const {
    return compresses_;
  }  // Then reduced() has no gradient scale when it comes back from the other hosts.

  // The next backward is the step's last, with this scale of its gradients.
  void expect_last_backward(double gradient_scale);
  void backward_ended(double gradient_scale);
  int buckets_in_backward() const { return arrived_; }  // Those that this rank had complete.
  // Whether a parameter is still to be reduced when all ranks of the host had the first
  // `in_backward` buckets complete.
  bool is_left(int parameter, int in_backward) const {
    return bucket_of_[static_cast<size_t>(parameter)] >= in_backward;
  }
  // The host's first rank, when all is reduced on this host: everything that is left travels, and
  // `facts`, which hear before of gradients that are not finite where compression looks for them.
  // Returns the bytes it sent.
  int64_t all_reduce(Group& leaders, const at::Tensor& facts,
                     const std::function<void()>& not_finite);
  // When all have met in the step.
  void next_step();
  // After the update, or where there was none: what compression left out is kept, or forgotten.
  void end_step(bool counted);
  // Of compression, by the same names on every rank; those that keep nothing get zeros, which lead
  // nowhere.
  std::vector<NamedTensor> state() const;

 private:
  struct Flags;
  Flags& flags(size_t bucket) const;
  void ready(int parameter);
  void send_reduced();
  size_t sent() const;
  at::Tensor flat(size_t bucket) const;
  void prepare(size_t bucket);
  void send(size_t bucket);

  std::shared_ptr<Group> group_;
  std::shared_ptr<comm::HostTeam> team_;
  Actions actions_;
  plan::BucketPlan plan_;
  BucketProgress progress_;
  std::vector<size_t> place_;   // By parameter: offset in the memory.
  std::vector<int> bucket_of_;  // By parameter.
  std::vector<size_t> begin_;   // By bucket: offset in the memory.
  std::shared_ptr<net::SharedMemory> memory_;
  std::unique_ptr<GradientWatch> watch_;  // Null where nothing can travel in backward.
  bool compresses_;
  std::unique_ptr<compression::CompressedBuckets> compressed_;  // The first rank's.
  std::vector<NamedTensor> forms_;  // The other ranks': what state() is like, without its memory.
  // Of the step under way.
  double gradient_scale_ = 1;
  int arrived_ = 0;
  std::vector<WorkPtr> works_;  // The first rank's, without compression: buckets sent.
};

}  // namespace trireme::shared
