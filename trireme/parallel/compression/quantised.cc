#include <torch/torch.h>

#include <trireme/parallel/compression/error_memory.h>
#include <trireme/parallel/compression/quantised.h>
#include <optional>

namespace trireme::compression {
namespace {

class Quantised : public Compressor {
 public:
  Quantised(std::shared_ptr<Group> group, const CompressedBucket& bucket, std::unique_ptr<Codec> codec, bool error_feedback)
      : group_(std::move(group)), codec_(std::move(codec)), elements_(bucket.elements) {
    // Chunks of whole blocks, one a rank, alike in size: the last ones are filled up with zeros.
    const int64_t unit = codec_->block() * group_->size();
    chunk_ = (elements_ + unit - 1) / unit * codec_->block();
    values_ = at::zeros({chunk_ * group_->size()}, at::kFloat);
    if (error_feedback) errors_.emplace(bucket);
  }

  int64_t all_reduce(const at::Tensor& flat) override {
    const torch::NoGradGuard no_grad;
    if (errors_) flat.add_(errors_->flat());
    values_.narrow(0, 0, elements_).copy_(flat);
    const at::Tensor mine = codec_->encode(values_);
    if (errors_) remember(mine);

    const at::Tensor sum = sum_of_own_chunk(mine);
    const at::Tensor encoded = codec_->encode(sum);
    if (errors_) remember_own_chunk(sum, encoded);
    const at::Tensor all = at::empty({encoded.numel() * group_->size()}, at::kByte);
    group_->all_gather(encoded, all);
    flat.copy_(codec_->decode(all).narrow(0, 0, elements_));
    // To each other rank its part of mine, and the sum of my chunk.
    return 2 * (group_->size() - 1) * encoded.numel();
  }

  std::vector<NamedTensor> state() override { return errors_ ? errors_->state() : std::vector<NamedTensor>(); }

 private:
  at::Tensor chunk_of(const at::Tensor& tensor, int rank) const {
    const int64_t size = tensor.numel() / group_->size();
    return tensor.narrow(0, rank * size, size);
  }

  at::Tensor sum_of_own_chunk(const at::Tensor& mine) const {
    const int ranks = group_->size(), self = group_->rank();
    const at::Tensor parts = at::empty_like(mine);
    std::vector<WorkPtr> works;
    for (int distance = 1; distance < ranks; ++distance) {
      const int to = (self + distance) % ranks, from = (self - distance + ranks) % ranks;
      works.push_back(group_->send_async(chunk_of(mine, to), to));
      works.push_back(group_->recv_async(chunk_of(parts, from), from));
    }
    for (const WorkPtr& work : works) work->wait();
    at::Tensor sum = at::zeros({chunk_}, at::kFloat);
    for (int rank = 0; rank < ranks; ++rank)  // The owner's own part needs no encoding.
      sum.add_(rank == self ? chunk_of(values_, self) : codec_->decode(chunk_of(parts, rank)));
    return sum;
  }

  // values_ holds what was to be sent.
  void remember(const at::Tensor& encoded) {
    const at::Tensor left = values_ - codec_->decode(encoded);
    chunk_of(left, group_->rank()).zero_();
    errors_->flat().copy_(left.narrow(0, 0, elements_));
  }

  // The sum's own error is its owner's; the place in the memory is free, as the owner's part was not encoded.
  void remember_own_chunk(const at::Tensor& sum, const at::Tensor& encoded) {
    const int64_t start = std::min(elements_, group_->rank() * chunk_);
    const int64_t length = std::min(elements_ - start, chunk_);
    errors_->flat().narrow(0, start, length).copy_((sum - codec_->decode(encoded)).narrow(0, 0, length));
  }

  std::shared_ptr<Group> group_;
  std::unique_ptr<Codec> codec_;
  int64_t elements_, chunk_ = 0;
  at::Tensor values_;  // float32, size() chunks.
  std::optional<ErrorMemory> errors_;
};

}  // namespace

std::unique_ptr<Compressor> make_quantised(std::shared_ptr<Group> group, const CompressedBucket& bucket, std::unique_ptr<Codec> codec,
                                           bool error_feedback) {
  return std::make_unique<Quantised>(std::move(group), bucket, std::move(codec), error_feedback);
}

}  // namespace trireme::compression
