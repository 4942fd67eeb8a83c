#include <trireme/data/pixels.h>

#include <limits>
#include <numeric>

#include "data_files.h"

namespace trireme::data::pixels_test {
namespace {

TEST(PixelScale, GivesTheBitsOfADivisionForEveryByteAndScale) {
  std::vector<uint8_t> bytes(256);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  std::vector<float> floats(256);
  std::vector<float> scales{0.1f, 1e-3f, 127.5f, 1e30f, 1e-30f, std::numeric_limits<float>::max()};
  for (int scale = 1; scale <= 1024; ++scale) scales.push_back(static_cast<float>(scale));
  for (const float scale : scales) {
    PixelScale(scale).convert(bytes.data(), 256, floats.data());
    for (size_t value = 0; value < 256; ++value)
      ASSERT_EQ(floats[value], static_cast<float>(value) / scale) << value << " / " << scale;
  }
}

TEST(PixelScale, WritesExactlyTheRequestedCount) {
  const std::vector<uint8_t> bytes(64, 255);
  for (int64_t count = 0; count < 40; ++count) {
    std::vector<float> floats(64, -1.0f);
    PixelScale(255).convert(bytes.data() + 1, count, floats.data());
    for (int64_t i = 0; i < 64; ++i)
      ASSERT_EQ(floats[static_cast<size_t>(i)], i < count ? 1.0f : -1.0f);
  }
}

TEST(PixelScale, RefusesAScaleThatCannotDivide) {
  for (const float scale : {0.0f, -1.0f, std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()})
    expect_error([scale] { PixelScale{scale}; }, ErrorCode::invalid_argument, {"scale of pixels"});
}

}  // namespace
}  // namespace trireme::data::pixels_test
