// Buckets of a step on their way through their compressors: one after another, in the plan's order
// on every rank. Where the carrier works in the background they are compressed in a thread of their
// own, while backward makes the next ones. The thread alone uses the group between the first send()
// of a step and the end of finish().
#pragma once
#include <trireme/comm/operation_queue.h>
#include <trireme/parallel/compression/compressor.h>
#include <trireme/plan/bucket_plan.h>
#include <memory>
#include <vector>

namespace trireme::compression {

// One rank's. Used by one thread.
class CompressedBuckets {
 public:
  CompressedBuckets(std::shared_ptr<Group> group, const plan::BucketPlan& plan,
                    const std::vector<NamedTensor>& parameters, const CompressionOptions& options);
  ~CompressedBuckets();  // Aborts the group if buckets are under way: they cannot be taken back.

  // Divides by `scale`, so that what is kept between steps knows no loss scale, and looks for NaN
  // and infinities: they become zeros, and the step must not count.
  void prepare(const at::Tensor& flat, double scale);
  bool is_finite() const { return is_finite_; }  // All that were prepared in this step.
  // The next bucket, prepared, is let go; `flat` becomes the sum, and is not touched before
  // finish().
  void send(at::Tensor flat);
  size_t sent() const { return sent_; }  // Buckets of this step.
  bool may_send_early() const {
    return sent_ + 1 < compressors_.size();
  }  // The last one waits for finish().

  // Lets go what is left, prepared, and waits until all has arrived. `facts` are added up over all
  // ranks; they travel ahead of the last bucket, at one place in the order of operations however
  // many buckets a rank sent early. Returns how many bytes this rank sent.
  int64_t finish(const std::vector<at::Tensor>& rest, const at::Tensor& facts);
  // The step that was finished counted, or everything that is kept stays as it was before it.
  void end_step(bool counted);

  std::vector<NamedTensor> state() const;
  // Takes what another plan's buckets of the same parameters have kept.
  void take_state(const CompressedBuckets& other);

 private:
  void add(std::function<void()> operation);

  std::shared_ptr<Group> group_;
  std::vector<std::unique_ptr<Compressor>> compressors_;  // By bucket.
  // Of the step under way.
  bool is_finite_ = true;
  size_t sent_ = 0;
  int64_t bytes_sent_ = 0;  // Added to by the queue's operations.
  WorkPtr facts_;           // Likewise.
  std::vector<WorkPtr> works_;
  comm::OperationQueue queue_;  // Last: its thread uses all of the above.
};

}  // namespace trireme::compression
