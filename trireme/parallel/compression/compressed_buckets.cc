#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <trireme/comm/dtype.h>
#include <trireme/parallel/compression/compressed_buckets.h>
#include <trireme/parallel/compression/kernels.h>

namespace trireme::compression {
namespace {

CompressedBucket layout_of(const plan::Bucket& bucket,
                           const std::vector<plan::TensorSpec>& specs) {
  CompressedBucket layout{{}, bucket.offsets, bucket.elements, to_torch(bucket.dtype)};
  for (const int parameter : bucket.params)
    layout.parameters.push_back(specs[static_cast<size_t>(parameter)]);
  return layout;
}

bool all_finite(const at::Tensor& flat) {
  if (flat.scalar_type() == at::kFloat)
    return is_finite(flat.const_data_ptr<float>(), flat.numel());
  // make_compressor() refuses all other types.
  return is_finite(flat.const_data_ptr<double>(), flat.numel());
}

}  // namespace

CompressedBuckets::CompressedBuckets(std::shared_ptr<Group> group, const plan::BucketPlan& plan,
                                     const std::vector<NamedTensor>& parameters,
                                     const CompressionOptions& options)
    : group_(std::move(group)) {
  const std::vector<plan::TensorSpec> specs = specs_of(parameters);
  for (const plan::Bucket& bucket : plan.buckets)
    compressors_.push_back(make_compressor(group_, layout_of(bucket, specs), options));
}

CompressedBuckets::~CompressedBuckets() {
  if (!works_.empty()) group_->abort("a step was abandoned while its gradients travelled");
}

void CompressedBuckets::prepare(const at::Tensor& flat, double scale) {
  if (scale != 1) flat.div_(scale);
  if (all_finite(flat)) return;
  is_finite_ = false;
  flat.zero_();
}

void CompressedBuckets::send(at::Tensor flat) {
  add([flat = std::move(flat), compressor = compressors_[sent_].get()] {
    compressor->all_reduce(flat);
  });
  ++sent_;
}

void CompressedBuckets::finish(const std::vector<at::Tensor>& rest, const at::Tensor& facts) {
  for (size_t i = 0; i + 1 < rest.size(); ++i) send(rest[i]);
  add([this, facts] { facts_ = group_->all_reduce_async(facts); });
  if (!rest.empty()) send(rest.back());
  for (const WorkPtr& work : works_) work->wait();
  facts_->wait();
  works_.clear();
}

void CompressedBuckets::add(std::function<void()> operation) {
  works_.push_back(queue_.add([operation = std::move(operation)] {
    const at::NoGradGuard no_grad;
    operation();
  }));
  if (group_->runs_in_background()) works_.back()->start();
}

void CompressedBuckets::end_step(bool counted) {
  if (counted)
    for (const auto& compressor : compressors_) compressor->commit();
  is_finite_ = true;
  sent_ = 0;
  facts_.reset();
}

StateView CompressedBuckets::state() const {
  StateView all;
  for (const auto& compressor : compressors_)
    for (StateEntry& part : compressor->state()) all.push_back(std::move(part));
  return all;
}

void CompressedBuckets::take_state(const CompressedBuckets& other) {
  const at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> kept;
  for (const StateEntry& entry : other.state()) kept.emplace(entry.slice.tensor, entry.tensor);
  for (const StateEntry& entry : state())
    if (const auto found = kept.find(entry.slice.tensor); found != kept.end())
      entry.tensor.copy_(found->second);
}

}  // namespace trireme::compression
