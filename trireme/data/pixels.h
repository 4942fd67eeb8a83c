// Converts bytes to floats: the inner loop of every image source.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::data {

// Computes pixel / scale for every byte, correctly rounded, without a division.
class PixelScale {
 public:
  explicit PixelScale(float scale);  // Throws Error(invalid_argument) unless positive and finite.
  void convert(const uint8_t* pixels, int64_t count, float* out) const;

 private:
  // 1 / scale as a sum. `high_` has 16 significant bits, so that its product with a byte is exact.
  float high_ = 1, low_ = 0;
  float scale_;
  bool split_is_exact_ = true;
};

// Makes numbers of pixels that lie channel by channel: pixel * scale + shift of its channel, which
// is (pixel / 255 - mean) / std, and the bits of images::write_row().
class PixelNorm {
 public:
  // Gives the bits of PixelScale(255).
  PixelNorm() : is_plain_(true) {}
  // One number for each channel, or one for all. Each std is above 0.
  PixelNorm(const std::vector<double>& mean, const std::vector<double>& std);

  // Converts one channel of an image: rows x columns bytes, one row after the other.
  void convert(int64_t channel, const uint8_t* pixels, int64_t rows, int64_t columns,
               bool mirror_columns, bool mirror_rows, float* out) const;

 private:
  void numbers(int64_t channel, const uint8_t* pixels, int64_t count, float* out) const;

  std::vector<float> scale_, shift_;
  PixelScale plain_{255};
  bool is_plain_ = false;
};

}  // namespace trireme::data
