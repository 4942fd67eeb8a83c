#include <trireme/data/pixels.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <bit>
#include <cmath>

namespace trireme::data {
namespace {

inline __attribute__((always_inline)) void multiply(const uint8_t* __restrict pixels,
                                                    int64_t count, float high, float low,
                                                    float* __restrict out) {
  for (int64_t i = 0; i < count; ++i) {
    const auto pixel = static_cast<float>(pixels[i]);
    out[i] = pixel * high + pixel * low;
  }
}

#if defined(__x86_64__)
// The same statement, compiled for eight floats at a time. It uses no fused operations, so that
// the bits are those of the plain version.
__attribute__((target("avx2"))) void multiply_avx2(const uint8_t* pixels, int64_t count,
                                                   float high, float low, float* out) {
  multiply(pixels, count, high, low, out);
}
#endif

void multiply_fastest(const uint8_t* pixels, int64_t count, float high, float low, float* out) {
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  if (has_avx2) return multiply_avx2(pixels, count, high, low, out);
#endif
  multiply(pixels, count, high, low, out);
}

float first_16_bits(float value) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0xffffff00U);
}

}  // namespace

PixelScale::PixelScale(float scale) : scale_(scale) {
  if (!(scale > 0) || !std::isfinite(scale))
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("the scale of pixels is {}, but must be positive", scale),
                "the largest value a pixel can have, such as 255");
  const double reciprocal = 1.0 / static_cast<double>(scale);
  high_ = first_16_bits(static_cast<float>(reciprocal));
  low_ = static_cast<float>(reciprocal - static_cast<double>(high_));
  uint8_t bytes[256];
  float products[256];
  for (int value = 0; value < 256; ++value) bytes[value] = static_cast<uint8_t>(value);
  multiply_fastest(bytes, 256, high_, low_, products);
  for (int value = 0; value < 256; ++value)
    split_is_exact_ &= products[value] == static_cast<float>(value) / scale;
}

void PixelScale::convert(const uint8_t* pixels, int64_t count, float* out) const {
  if (split_is_exact_) return multiply_fastest(pixels, count, high_, low_, out);
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(pixels[i]) / scale_;
}

}  // namespace trireme::data
