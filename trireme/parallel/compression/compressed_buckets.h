// The buckets of a step on their way through their compressors: one after another, in the plan's
// order on every rank. If the backend works in the background, a separate thread compresses
// buckets while backward makes the next ones. That thread alone uses the group between the first
// send() of a step and the end of finish().
#pragma once
#include <trireme/comm/operation_queue.h>
#include <trireme/parallel/compression/compressor.h>
#include <trireme/plan/bucket_plan.h>
#include <memory>
#include <vector>

namespace trireme::compression {

// The buckets of one rank. One thread uses it.
class CompressedBuckets {
 public:
  CompressedBuckets(std::shared_ptr<Group> group, const plan::BucketPlan& plan,
                    const std::vector<NamedTensor>& parameters, const CompressionOptions& options);
  // Aborts the group if buckets are on their way: they cannot be taken back.
  ~CompressedBuckets();

  // Divides by `scale`, so that errors kept between steps do not depend on the loss scale.
  // Replaces NaN and infinities by zeros; the step must then not count.
  void prepare(const at::Tensor& flat, double scale);
  // Whether all buckets that were prepared in this step are finite.
  bool is_finite() const { return is_finite_; }
  // Sends the next bucket, which is prepared. `flat` becomes the sum; do not touch it
  // before finish().
  void send(at::Tensor flat);
  size_t sent() const { return sent_; }  // The number of buckets sent in this step.
  // False for the last bucket, which waits for finish().
  bool may_send_early() const { return sent_ + 1 < compressors_.size(); }

  // Sends the remaining buckets, which are prepared, and waits until all have arrived. `facts` are
  // added up over all ranks. They travel before the last bucket: this is the same place in the
  // order of operations on every rank, however many buckets it sent early.
  void finish(const std::vector<at::Tensor>& rest, const at::Tensor& facts);
  // Ends the step. If it did not count, the kept errors stay as they were before it.
  void end_step(bool counted);

  StateView state() const;
  // Takes over the kept errors of `other`, whose plan orders the same parameters differently.
  void take_state(const CompressedBuckets& other);

 private:
  void add(std::function<void()> operation);

  std::shared_ptr<Group> group_;
  std::vector<std::unique_ptr<Compressor>> compressors_;  // One for each bucket.
  // The state of the current step follows.
  bool is_finite_ = true;
  size_t sent_ = 0;
  WorkPtr facts_;  // The queue's operations set it.
  std::vector<WorkPtr> works_;
  comm::OperationQueue queue_;  // The last member, because its thread uses all of the above.
};

}  // namespace trireme::compression
