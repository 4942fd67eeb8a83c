#include <torch/torch.h>

#include <trireme/parallel/compression/built_in.h>
#include <trireme/parallel/compression/quantised.h>

namespace trireme::compression {
namespace {

class Bfloat16 : public Codec {
 public:
  int64_t block() const override { return 1; }
  int64_t block_bytes() const override { return 2; }
  at::Tensor encode(const at::Tensor& values) const override { return values.to(at::kBFloat16).view(at::kByte); }
  at::Tensor decode(const at::Tensor& bytes) const override { return bytes.view(at::kBFloat16).to(at::kFloat); }
};

// Blocks of numbers of another type behind one float32 scale each; `largest` is what a block's largest value becomes, or nearly so.
class Scaled : public Codec {
 public:
  Scaled(int64_t block, at::ScalarType type, double largest)
      : block_(block), type_(type), largest_(largest), payload_(block * static_cast<int64_t>(c10::elementSize(type))) {}
  int64_t block() const override { return block_; }
  int64_t block_bytes() const override { return kScaleBytes + payload_; }

  at::Tensor encode(const at::Tensor& values) const override {
    const at::Tensor rows = values.view({-1, block_});
    const at::Tensor scales = scales_of(at::amax(rows.abs(), {1}, /*keepdim=*/true));
    const at::Tensor bytes = at::empty({rows.size(0), block_bytes()}, at::kByte);
    bytes.narrow(1, 0, kScaleBytes).copy_(scales.view(at::kByte));
    at::Tensor scaled = rows / scales;
    if (!c10::isFloatingType(type_)) scaled.round_();
    bytes.narrow(1, kScaleBytes, payload_).copy_(scaled.to(type_).view(at::kByte));
    return bytes.view({-1});
  }

  at::Tensor decode(const at::Tensor& bytes) const override {
    const at::Tensor rows = bytes.view({-1, block_bytes()});
    const at::Tensor scales = rows.narrow(1, 0, kScaleBytes).contiguous().view(at::kFloat);
    return (rows.narrow(1, kScaleBytes, payload_).contiguous().view(type_).to(at::kFloat) * scales).view({-1});
  }

 private:
  static constexpr int64_t kScaleBytes = 4;

  // A block of zeros keeps a scale of 1. Floating types get powers of two, which cost no precision.
  at::Tensor scales_of(const at::Tensor& most) const {
    at::Tensor scales = most / largest_;
    if (c10::isFloatingType(type_)) scales = at::exp2(at::ceil(at::log2(scales)));
    constexpr double kSmallest = 1e-37;  // A scale below would be no normal float.
    return at::where(scales < kSmallest, at::where(most > 0, at::full_like(scales, kSmallest), at::ones_like(scales)), scales);
  }

  int64_t block_;
  at::ScalarType type_;
  double largest_;
  int64_t payload_;
};

}  // namespace

std::unique_ptr<Compressor> make_bf16(std::shared_ptr<Group> group, const CompressedBucket& bucket, const CompressionOptions&) {
  return make_quantised(std::move(group), bucket, std::make_unique<Bfloat16>(), false);
}
std::unique_ptr<Compressor> make_fp16(std::shared_ptr<Group> group, const CompressedBucket& bucket, const CompressionOptions&) {
  constexpr double kLargest = 32768;  // Half the largest finite float16: a power of two that leaves room for rounding.
  return make_quantised(std::move(group), bucket, std::make_unique<Scaled>(1024, at::kHalf, kLargest), false);
}
std::unique_ptr<Compressor> make_int8(std::shared_ptr<Group> group, const CompressedBucket& bucket, const CompressionOptions&) {
  return make_quantised(std::move(group), bucket, std::make_unique<Scaled>(256, at::kChar, 127), true);
}

}  // namespace trireme::compression
