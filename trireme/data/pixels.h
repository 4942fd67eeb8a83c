// Converts bytes to floats: the inner loop of every image source.
#pragma once
#include <cstdint>

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

}  // namespace trireme::data
