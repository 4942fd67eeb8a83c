// The gradients of a host on their way to the other hosts. The host's ranks reduce them into
// buckets, and the host's first rank all-reduces the buckets with the first ranks of the other
// hosts, if possible while backward runs (hierarchical all-reduce; Goyal et al. 2017, section 4).
//
// In backward, the last of the host's ranks to complete a bucket reduces it, and the first rank
// sends it at its own next gradient. Some buckets are not complete on all ranks before the step:
// all ranks reduce them together, each its own shard. All hosts send buckets in the plan's order,
// so hosts need not be equally far when backward ends.
//
// Compression is between the hosts only: the first ranks have the compressors and
// their kept state.
#pragma once
#include <trireme/base/error_parts.h>
#include <trireme/comm/group.h>
#include <trireme/comm/host/host_team.h>
#include <trireme/parallel/bucket_progress.h>
#include <trireme/parallel/compression/compressed_buckets.h>
#include <trireme/parallel/gradient_watch.h>
#include <functional>
#include <memory>
#include <vector>

namespace trireme::shared {

// Runs `action` on the host's first rank, with the first ranks of the other hosts. If it fails,
// the host's other ranks must not wait for it.
template <typename Action>
void lead_host(Group& group, comm::HostTeam& team, Action action) {
  const auto leaders = group.between_hosts();
  if (!leaders) return;
  try {
    action(*leaders);
  } catch (const std::exception& error) {
    team.abort(parts_of(error).what);  // Each rank adds its own number to the text.
    throw;
  }
}

// One rank's part. The thread that calls backward and step uses it.
class BetweenHosts {
 public:
  struct Actions {
    // Lets the other ranks of the host read this rank's gradient from now on.
    std::function<void(int parameter)> publish;
    // Adds up all ranks' gradients of a parameter, into reduced().
    std::function<void(int parameter)> reduce;
  };
  // COLLECTIVE over all ranks. `parameters` and `plan` must outlive the object.
  BetweenHosts(std::shared_ptr<Group> group, const std::vector<NamedTensor>& parameters,
               const plan::BucketPlan& plan, const CompressionOptions& compression,
               Actions actions);

  std::byte* reduced(int parameter) const {
    return memory_->data() + place_[static_cast<size_t>(parameter)];
  }
  bool is_published(int parameter) const { return progress_.is_ready(parameter); }
  // Whether gradients are compressed. reduced() then comes back from the other hosts without the
  // gradient scale.
  bool compresses() const { return compresses_; }

  // Announces that the next backward is the step's last, with this scale of its gradients.
  void expect_last_backward(double gradient_scale);
  void backward_ended(double gradient_scale);
  // The number of buckets that this rank completed in backward.
  int buckets_in_backward() const { return arrived_; }
  // Whether a parameter must still be reduced if all ranks of the host completed the first
  // `in_backward` buckets.
  bool is_left(int parameter, int in_backward) const {
    return bucket_of_[static_cast<size_t>(parameter)] >= in_backward;
  }
  // Only the host's first rank calls it, when all is reduced on this host. Sends the remaining
  // buckets and `facts`. If compression finds gradients that are not finite, `not_finite` runs
  // before `facts` are sent.
  void all_reduce(Group& leaders, const at::Tensor& facts,
                  const std::function<void()>& not_finite);
  // Call it when all ranks of the host have met in the step.
  void next_step();
  // Call it after the update, or when there was none. Keeps what compression left out if the step
  // counted, and forgets it otherwise.
  void end_step(bool counted);
  // The state of compression, with the same names on every rank. Ranks without compressors return
  // zeros that nothing reads.
  StateView state() const;

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
  const plan::BucketPlan& plan_;
  BucketProgress progress_;
  std::vector<size_t> place_;   // By parameter: its offset in the memory.
  std::vector<int> bucket_of_;  // By parameter: its bucket.
  std::vector<size_t> begin_;   // By bucket: its offset in the memory.
  std::shared_ptr<net::SharedMemory> memory_;
  std::unique_ptr<GradientWatch> watch_;  // Null if nothing can travel in backward.
  bool compresses_;
  std::unique_ptr<compression::CompressedBuckets> compressed_;  // Only the first rank has it.
  // The names, shapes and types of state(), without memory. Only the other ranks have them.
  StateView forms_;
  // The state of the current step follows.
  double gradient_scale_ = 1;
  int arrived_ = 0;
  // The sent buckets. Only the first rank has them, and only without compression.
  std::vector<WorkPtr> works_;
};

}  // namespace trireme::shared
