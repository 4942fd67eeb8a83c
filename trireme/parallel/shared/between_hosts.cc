#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <trireme/comm/dtype.h>
#include <trireme/parallel/shared/between_hosts.h>
#include <trireme/plan/shared_layout.h>
#include <atomic>

namespace trireme::shared {
namespace {

using plan::kCacheLine;

size_t whole_lines(size_t bytes) { return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine; }

}  // namespace

// The flags of one bucket. They lie at the beginning of the memory, one cache line
// for each bucket.
struct alignas(kCacheLine) BetweenHosts::Flags {
  std::atomic<int> arrived;   // The number of ranks that completed the bucket in backward.
  std::atomic<bool> reduced;  // The last of these ranks has reduced it.
  // Only bucket 0's is used: the first rank's backend works in the background.
  bool travels_in_backward;
};

BetweenHosts::BetweenHosts(std::shared_ptr<Group> group,
                           const std::vector<NamedTensor>& parameters,
                           const plan::BucketPlan& plan, const CompressionOptions& compression,
                           Actions actions)
    : group_(std::move(group)),
      team_(group_->host_team()),
      actions_(std::move(actions)),
      plan_(plan),
      progress_(plan_, parameters),
      place_(parameters.size(), 0),
      bucket_of_(parameters.size(), 0),
      compresses_(compression.name != "none") {
  size_t end = std::max<size_t>(1, plan_.buckets.size()) * sizeof(Flags);
  for (size_t b = 0; b < plan_.buckets.size(); ++b) {
    const plan::Bucket& bucket = plan_.buckets[b];
    begin_.push_back(end);
    for (size_t i = 0; i < bucket.params.size(); ++i) {
      const auto p = static_cast<size_t>(bucket.params[i]);
      place_[p] =
          end + static_cast<size_t>(bucket.offsets[i]) * c10::elementSize(to_torch(bucket.dtype));
      bucket_of_[p] = static_cast<int>(b);
    }
    end += whole_lines(static_cast<size_t>(bucket.elements) *
                       c10::elementSize(to_torch(bucket.dtype)));
  }
  memory_ = team_->allocate(end, end, "gradients between hosts");
  const auto leaders = group_->between_hosts();
  if (leaders) flags(0).travels_in_backward = leaders->runs_in_background();
  if (compresses_) {
    auto compressed = std::make_unique<compression::CompressedBuckets>(
        leaders ? leaders : group_, plan_, parameters, compression);
    if (leaders)
      compressed_ = std::move(compressed);
    else
      for (StateEntry& entry : compressed->state()) {
        entry.tensor = entry.tensor.to(at::kMeta);
        forms_.push_back(std::move(entry));
      }
  }
  team_->barrier("gradients between hosts");
  if (!flags(0).travels_in_backward) return;
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : parameters) tensors.push_back(tensor);
  watch_ = std::make_unique<GradientWatch>(tensors, [this](int parameter) { ready(parameter); });
}

BetweenHosts::Flags& BetweenHosts::flags(size_t bucket) const {
  return reinterpret_cast<Flags*>(memory_->data())[bucket];
}

void BetweenHosts::expect_last_backward(double gradient_scale) {
  gradient_scale_ = gradient_scale;
  if (watch_) watch_->arm(true);
}

void BetweenHosts::backward_ended(double gradient_scale) {
  gradient_scale_ = gradient_scale;
  if (watch_) watch_->arm(false);
}

void BetweenHosts::ready(int parameter) {
  const at::NoGradGuard no_grad;
  progress_.ready(parameter);
  actions_.publish(parameter);
  for (auto bucket = static_cast<size_t>(arrived_);
       bucket < plan_.buckets.size() && progress_.is_complete(bucket); ++bucket) {
    ++arrived_;
    if (flags(bucket).arrived.fetch_add(1, std::memory_order_acq_rel) + 1 < team_->size())
      continue;
    for (const int p : plan_.buckets[bucket].params) actions_.reduce(p);
    flags(bucket).reduced.store(true, std::memory_order_release);
  }
  send_reduced();
}

void BetweenHosts::send_reduced() {
  if (!group_->between_hosts()) return;
  while (sent() < plan_.buckets.size() && flags(sent()).reduced.load(std::memory_order_acquire)) {
    if (compressed_ && !compressed_->may_send_early()) return;
    const size_t bucket = sent();
    prepare(bucket);
    send(bucket);
  }
}

size_t BetweenHosts::sent() const { return compressed_ ? compressed_->sent() : works_.size(); }

at::Tensor BetweenHosts::flat(size_t bucket) const {
  const plan::Bucket& part = plan_.buckets[bucket];
  return at::from_blob(memory_->data() + begin_[bucket], {part.elements}, to_torch(part.dtype));
}

void BetweenHosts::prepare(size_t bucket) {
  if (compressed_) compressed_->prepare(flat(bucket), gradient_scale_);
}

void BetweenHosts::send(size_t bucket) {
  if (compressed_)
    compressed_->send(flat(bucket));
  else
    works_.push_back(group_->between_hosts()->all_reduce_async(flat(bucket)));
}

void BetweenHosts::all_reduce(Group& leaders, const at::Tensor& facts,
                              const std::function<void()>& not_finite) {
  if (compressed_) {
    std::vector<at::Tensor> rest;
    for (size_t bucket = sent(); bucket < plan_.buckets.size(); ++bucket) {
      prepare(bucket);
      rest.push_back(flat(bucket));
    }
    if (!compressed_->is_finite()) not_finite();
    return compressed_->finish(rest, facts);
  }
  while (sent() < plan_.buckets.size()) send(sent());
  leaders.all_reduce(facts);
  for (const WorkPtr& work : works_) work->wait();
}

void BetweenHosts::end_step(bool counted) {
  if (compressed_) compressed_->end_step(counted);
}

StateView BetweenHosts::state() const {
  if (compressed_) return compressed_->state();
  StateView zeros = forms_;
  for (StateEntry& entry : zeros)
    entry.tensor = at::zeros(entry.tensor.sizes(), entry.tensor.options().device(at::kCPU));
  return zeros;
}

void BetweenHosts::next_step() {
  progress_.next_step();
  works_.clear();
  arrived_ = 0;
  if (team_->rank() != 0) return;
  for (size_t bucket = 0; bucket < plan_.buckets.size(); ++bucket) {
    flags(bucket).arrived.store(0, std::memory_order_relaxed);
    flags(bucket).reduced.store(false, std::memory_order_relaxed);
  }
}

}  // namespace trireme::shared
