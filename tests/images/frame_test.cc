#include <gtest/gtest.h>

#include <trireme/images/frame.h>
#include <algorithm>
#include <string>

#include "../base/expect_error.h"
#include "encoded.h"

namespace trireme::images::frame_test {
namespace {

// A row of the pixels 1, 2, 3, with `more` further ones on both sides.
std::string row_with(FrameMode mode, int64_t more) {
  Image row, out;
  row.reshape(1, 3, 1);
  row.pixels = {1, 2, 3};
  crop_with_frame(row, {0, -more, 1, 3 + 2 * more}, {.mode = mode, .fill = {9}}, out);
  std::string text;
  for (const uint8_t pixel : out.pixels) text += static_cast<char>('0' + pixel);
  return text;
}

TEST(Frame, ContinuesARowAsItsModeSays) {
  EXPECT_EQ(row_with(FrameMode::constant, 2), "9912399");
  EXPECT_EQ(row_with(FrameMode::edge, 2), "1112333");
  EXPECT_EQ(row_with(FrameMode::reflect, 2), "3212321");
  EXPECT_EQ(row_with(FrameMode::symmetric, 2), "2112332");
  EXPECT_EQ(row_with(FrameMode::reflect, 5), "2123212321232");
  EXPECT_EQ(row_with(FrameMode::symmetric, 5), "2332112332112");
}

TEST(Frame, HasTheModeInRowsAndColumnsOfAnyPart) {
  const Image image = painted(4, 5);
  const auto mirrored = [](int64_t i, int64_t size) {
    return i < 0 ? -i : std::min(i, 2 * size - 2 - i);
  };
  Image out;
  for (const Crop& part : {Crop{-3, -4, 10, 12}, Crop{1, 2, 2, 2}, Crop{-2, 1, 3, 6},
                           Crop{4, 5, 2, 3}, Crop{-3, -4, 2, 3}}) {
    crop_with_frame(image, part, {.mode = FrameMode::reflect}, out);
    ASSERT_EQ(out.size(), (Size{part.height, part.width}));
    for (int64_t y = 0; y < part.height; ++y)
      for (int64_t x = 0; x < part.width; ++x)
        for (int64_t c = 0; c < 3; ++c)
          ASSERT_EQ(out.row(y)[3 * x + c],
                    image.row(mirrored(part.top + y, 4))[3 * mirrored(part.left + x, 5) + c]);
    crop_with_frame(image, part, {.fill = {10, 20, 30}}, out);
    for (int64_t y = 0; y < part.height; ++y)
      for (int64_t x = 0; x < part.width; ++x)
        for (int64_t c = 0; c < 3; ++c) {
          const int64_t row = part.top + y, column = part.left + x;
          const bool is_inside = row >= 0 && row < 4 && column >= 0 && column < 5;
          ASSERT_EQ(out.row(y)[3 * x + c],
                    is_inside ? image.row(row)[3 * column + c] : 10 * (c + 1));
        }
  }
}

TEST(Frame, RepeatsTheOnlyPixelOfARow) {
  const Image image = painted(1, 1);
  for (const FrameMode mode : {FrameMode::edge, FrameMode::reflect, FrameMode::symmetric}) {
    Image out;
    crop_with_frame(image, {-2, -3, 5, 7}, {.mode = mode}, out);
    for (size_t i = 0; i < out.pixels.size(); ++i) ASSERT_EQ(out.pixels[i], image.pixels[i % 3]);
  }
}

TEST(Frame, RefusesACropWithoutPixels) {
  const Image image = painted(2, 2);
  Image out;
  message_of(ErrorCode::invalid_argument, [&] { crop_with_frame(image, {0, 0, 0, 1}, {}, out); });
  message_of(ErrorCode::invalid_argument, [&] { crop_with_frame({}, {0, 0, 1, 1}, {}, out); });
}

}  // namespace
}  // namespace trireme::images::frame_test
