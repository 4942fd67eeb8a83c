#include <trireme/data/pixels.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <algorithm>
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

inline __attribute__((always_inline)) void scale_and_shift(const uint8_t* __restrict pixels,
                                                           int64_t count, float scale, float shift,
                                                           float* __restrict out) {
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(pixels[i]) * scale + shift;
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void scale_and_shift_avx2(const uint8_t* pixels, int64_t count,
                                                          float scale, float shift, float* out) {
  scale_and_shift(pixels, count, scale, shift, out);
}
#endif

void scale_and_shift_fastest(const uint8_t* pixels, int64_t count, float scale, float shift,
                             float* out) {
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  if (has_avx2) return scale_and_shift_avx2(pixels, count, scale, shift, out);
#endif
  scale_and_shift(pixels, count, scale, shift, out);
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

PixelNorm::PixelNorm(const std::vector<double>& mean, const std::vector<double>& std) {
  for (size_t i = 0; i < std::max(mean.size(), std.size()); ++i) {
    const double middle = mean[std::min(i, mean.size() - 1)];
    const double width = std[std::min(i, std.size() - 1)];
    scale_.push_back(static_cast<float>(1.0 / (255.0 * width)));
    shift_.push_back(static_cast<float>(-middle / width));
  }
}

void PixelNorm::numbers(int64_t channel, const uint8_t* pixels, int64_t count, float* out) const {
  if (is_plain_) return plain_.convert(pixels, count, out);
  const size_t place = std::min(static_cast<size_t>(channel), scale_.size() - 1);
  scale_and_shift_fastest(pixels, count, scale_[place], shift_[place], out);
}

void PixelNorm::convert(int64_t channel, const uint8_t* pixels, int64_t rows, int64_t columns,
                        bool mirror_columns, bool mirror_rows, float* out) const {
  if (!mirror_columns && !mirror_rows) return numbers(channel, pixels, rows * columns, out);
  for (int64_t row = 0; row < rows; ++row) {
    float* const to = out + row * columns;
    numbers(channel, pixels + (mirror_rows ? rows - 1 - row : row) * columns, columns, to);
    if (mirror_columns) std::reverse(to, to + columns);
  }
}

}  // namespace trireme::data
