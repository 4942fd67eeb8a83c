#include <trireme/parallel/compression/push_codec.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/parallel/compression/codecs.h>
#include <trireme/plan/kept_values.h>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

namespace trireme::compression {
namespace {

// Places first, then values: 8 bytes for each pair.
constexpr int64_t kBytesOfPair = sizeof(int32_t) + sizeof(float);

void keep_largest(const float* values, int64_t elements, int64_t kept, std::byte* bytes,
                  float* left) {
  std::vector<int32_t> order(static_cast<size_t>(elements));
  std::iota(order.begin(), order.end(), 0);
  std::nth_element(order.begin(), order.begin() + kept, order.end(), [&](int32_t a, int32_t b) {
    const float x = std::abs(values[a]), y = std::abs(values[b]);
    return x != y ? x > y : a < b;
  });
  if (left) std::copy_n(values, elements, left);
  for (int64_t i = 0; i < kept; ++i) {
    const int32_t at = order[static_cast<size_t>(i)];
    std::memcpy(bytes + i * static_cast<int64_t>(sizeof at), &at, sizeof at);
    std::memcpy(bytes + kept * static_cast<int64_t>(sizeof at) + i * static_cast<int64_t>(4),
                values + at, sizeof(float));
    if (left) left[at] = 0;
  }
}

// A place outside of the gradient is left out: the sender is authenticated, but may be broken.
void place_largest(const std::byte* bytes, int64_t elements, int64_t kept, float* values) {
  std::fill_n(values, elements, 0.0F);
  for (int64_t i = 0; i < kept; ++i) {
    int32_t at = 0;
    std::memcpy(&at, bytes + i * static_cast<int64_t>(sizeof at), sizeof at);
    if (at < 0 || at >= elements)
      throw Error(ErrorCode::corrupt, "parallel",
                  fmt::format("a compressed gradient has place {} of {}", at, elements));
    std::memcpy(values + at, bytes + (kept + i) * static_cast<int64_t>(sizeof(float)),
                sizeof(float));
  }
}

}  // namespace

PushCodec::PushCodec(const plan::CompressionOptions& options) : ratio_(options.ratio) {
  has_error_feedback_ = options.name == "int8" || options.name == "topk";
  blocks_ = codec_of(options.name);
  if (!blocks_ && options.name != "topk")
    throw Error(ErrorCode::unsupported, "parallel",
                fmt::format("strategy.compression is {}, which parameter servers cannot use",
                            options.name),
                "bf16, fp16, int8, topk or none");
}

PushCodec::~PushCodec() = default;

int64_t PushCodec::bytes_of(int64_t elements) const {
  if (!blocks_) return plan::kept_values(elements, ratio_) * kBytesOfPair;
  return (elements + blocks_->block() - 1) / blocks_->block() * blocks_->block_bytes();
}

// Zeros fill up the last block.
void PushCodec::encode(const float* values, int64_t elements, std::byte* bytes,
                       float* left) const {
  if (!blocks_)
    return keep_largest(values, elements, plan::kept_values(elements, ratio_), bytes, left);
  const int64_t block = blocks_->block(), whole = elements / block, rest = elements % block;
  blocks_->encode(values, whole, bytes, left);
  if (rest == 0) return;
  std::vector<float> last(static_cast<size_t>(block)), last_left(static_cast<size_t>(block));
  std::copy_n(values + whole * block, rest, last.begin());
  blocks_->encode(last.data(), 1, bytes + whole * blocks_->block_bytes(),
                  left ? last_left.data() : nullptr);
  if (left) std::copy_n(last_left.begin(), rest, left + whole * block);
}

void PushCodec::decode(const std::byte* bytes, int64_t elements, float* values) const {
  if (!blocks_) return place_largest(bytes, elements, plan::kept_values(elements, ratio_), values);
  const int64_t block = blocks_->block(), whole = elements / block, rest = elements % block;
  blocks_->decode(bytes, whole, values);
  if (rest == 0) return;
  std::vector<float> last(static_cast<size_t>(block));
  blocks_->decode(bytes + whole * blocks_->block_bytes(), 1, last.data());
  std::copy_n(last.begin(), rest, values + whole * block);
}

}  // namespace trireme::compression
