#include <gtest/gtest.h>

#include <trireme/images/rows.h>
#include <bit>
#include <cmath>

#include "../base/expect_error.h"
#include "encoded.h"

namespace trireme::images::rows_test {
namespace {

const RowOptions kUsual{.mean = {0.485F, 0.456F, 0.406F, 0.5F},
                        .std = {0.229F, 0.224F, 0.225F, 0.3F}};

std::vector<float> row_of(const Image& image, const RowOptions& options) {
  std::vector<float> row(image.pixels.size());
  write_row(image, options, row.data());
  return row;
}

TEST(WriteRow, NormalisesFlipsAndOrdersAnyImage) {
  for (const int64_t channels : {1, 2, 3, 4})
    for (const int64_t width : {1, 31, 200, 600})
      for (int flags = 0; flags < 8; ++flags) {
        const Image image = painted(5, width, channels);
        RowOptions options = kUsual;
        options.flip_horizontally = flags & 1;
        options.flip_vertically = flags & 2;
        options.channels_last = flags & 4;
        const auto row = row_of(image, options);
        for (int64_t y = 0; y < 5; ++y)
          for (int64_t x = 0; x < width; ++x)
            for (int64_t c = 0; c < channels; ++c) {
              const auto channel = static_cast<size_t>(c);
              const int64_t from_y = flags & 2 ? 4 - y : y, from_x = flags & 1 ? width - 1 - x : x;
              const double byte = image.row(from_y)[from_x * channels + c];
              const double expected = (byte / 255 - options.mean[channel]) / options.std[channel];
              const int64_t at =
                  flags & 4 ? (y * width + x) * channels + c : (c * 5 + y) * width + x;
              ASSERT_NEAR(row[static_cast<size_t>(at)], expected, 1e-6);
            }
      }
}

TEST(WriteRow, WritesNothingOfAnImageWithoutPixels) {
  RowOptions options = kUsual;
  options.flip_horizontally = true;
  float number = 7;
  write_row(Planes{nullptr, 3, 5, 0}, options, &number);
  Image image;
  image.reshape(0, 4, 3);
  write_row(image, options, &number);
  EXPECT_EQ(number, 7);
}

// The clones for newer processors must round like this one.
TEST(WriteRow, HasTheBitsOfPlainArithmetic) {
  Image image;
  image.reshape(3, 256, 3);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<uint8_t>(i / 3);
  const auto row = row_of(image, kUsual);
  std::vector<uint16_t> halves(image.pixels.size());
  write_row(image, kUsual, halves.data());
  for (size_t c = 0; c < 3; ++c) {
    const auto factor = static_cast<float>(1 / (255 * static_cast<double>(kUsual.std[c])));
    const auto offset = static_cast<float>(-static_cast<double>(kUsual.mean[c]) / kUsual.std[c]);
    for (size_t byte = 0; byte < 256; ++byte) {
      const volatile float product = static_cast<float>(byte) * factor;  // No fused operation.
      const float expected = product + offset;
      ASSERT_EQ(row[c * 768 + byte], expected);
      // bfloat16 by its definition: the nearest value with 8 significant bits, ties to even.
      const double unit = std::exp2(std::ilogb(expected) - 7);
      const auto nearest = static_cast<float>(std::nearbyint(expected / unit) * unit);
      ASSERT_EQ(halves[c * 768 + byte], std::bit_cast<uint32_t>(nearest) >> 16) << expected;
    }
  }
}

TEST(WriteRow, PlanesHaveTheBitsOfTheImageInBothTypes) {
  const Image image = painted(5, 600);
  std::vector<uint8_t> planar(image.pixels.size());
  for (size_t i = 0; i < planar.size(); ++i) planar[i % 3 * 3000 + i / 3] = image.pixels[i];
  for (int flags = 0; flags < 4; ++flags) {
    RowOptions options = kUsual;
    options.flip_horizontally = flags & 1;
    options.flip_vertically = flags & 2;
    const Planes planes{planar.data(), 3, 5, 600};
    std::vector<float> row(planar.size());
    write_row(planes, options, row.data());
    EXPECT_EQ(row, row_of(image, options));
    std::vector<uint16_t> halves(planar.size()), of_image(planar.size());
    write_row(planes, options, halves.data());
    write_row(image, options, of_image.data());
    EXPECT_EQ(halves, of_image);
  }
}

TEST(WriteErased, WritesTheValuesOfEachChannelOrNoise) {
  const auto plain = row_of(painted(6, 8), kUsual);
  const auto with = [&](const EraseBox& box) {
    auto row = plain;
    write_erased(box, 3, {6, 8}, row.data());
    return row;
  };
  const auto erased = with({.box = {1, 2, 3, 4}, .values = {9, 8, 7, 0}});
  const EraseBox noise{.box = {1, 2, 3, 4}, .with_noise = true, .noise_bits = 5};
  const auto noisy = with(noise);
  EXPECT_EQ(noisy, with(noise));
  for (size_t i = 0; i < plain.size(); ++i) {
    const size_t x = i % 8, y = i / 8 % 6, c = i / 48;
    const bool inside = y >= 1 && y < 4 && x >= 2 && x < 6;
    EXPECT_EQ(erased[i], inside ? 9.0F - static_cast<float>(c) : plain[i]);
    EXPECT_EQ(noisy[i] == plain[i], !inside);
  }
  EXPECT_EQ(with({.box = {1, 2, 0, 4}}), plain);
  message_of(ErrorCode::invalid_argument, [&] { with({.box = {2, 2, 5, 1}}); });
}

TEST(WriteErased, HasTheSameNoiseAtAnotherPlaceAndRoundsItForBfloat16) {
  EraseBox noise{.box = {1, 2, 3, 4}, .with_noise = true, .noise_bits = 5};
  std::vector<float> whole(3 * 6 * 8), part(3 * 3 * 4);
  std::vector<uint16_t> halves(part.size());
  write_erased(noise, 3, {6, 8}, whole.data());
  noise.box = {0, 0, 3, 4};
  write_erased(noise, 3, {3, 4}, part.data());
  write_erased(noise, 3, {3, 4}, halves.data());
  for (size_t i = 0; i < part.size(); ++i) {
    EXPECT_EQ(part[i], whole[(i / 12 * 6 + i / 4 % 3 + 1) * 8 + i % 4 + 2]);
    const double unit = std::exp2(std::ilogb(part[i]) - 7);
    const auto nearest = static_cast<float>(std::nearbyint(part[i] / unit) * unit);
    EXPECT_EQ(halves[i], std::bit_cast<uint32_t>(nearest) >> 16);
  }
}

TEST(WriteRow, RefusesWrongOptionsBeforeItWrites) {
  const Image image = painted(4, 4);
  std::vector<float> row(48, 5);
  const auto refused = [&](const RowOptions& options) {
    message_of(ErrorCode::invalid_argument, [&] { write_row(image, options, row.data()); });
  };
  refused({.std = {1, 0, 1, 1}});
  refused({.mean = {NAN, 0, 0, 0}});
  EXPECT_EQ(row, std::vector<float>(48, 5));
}

}  // namespace
}  // namespace trireme::images::rows_test
