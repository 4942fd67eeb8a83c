#include <gtest/gtest.h>

#include <trireme/base/hash.h>
#include <trireme/images/colour.h>
#include <algorithm>
#include <cmath>
#include <set>

#include "../base/expect_error.h"
#include "encoded.h"

namespace trireme::images::colour_test {
namespace {

Image changed(const Image& image, const Jitter& jitter) {
  Image copy = image;
  apply_jitter(jitter, copy);
  return copy;
}

// A row with all of a cube of colours.
Image colours() {
  Image image;
  image.reshape(1, 18 * 18 * 18, 3);
  for (int i = 0; i < 18 * 18 * 18; ++i)
    for (const auto& [channel, place] : {std::pair{0, i % 18}, {1, i / 18 % 18}, {2, i / 324}})
      image.pixels[static_cast<size_t>(3 * i + channel)] = static_cast<uint8_t>(15 * place);
  return image;
}

TEST(Jitter, LeavesAnImageAsItIsByNeutralFactors) {
  const Image image = colours();
  for (const Jitter& jitter : {Jitter{}, Jitter{.brightness = 1}, Jitter{.contrast = 1},
                               Jitter{.saturation = 1}, Jitter{.hue = 0}})
    EXPECT_EQ(changed(image, jitter).pixels, image.pixels);
}

TEST(Jitter, TurnsColoursAroundTheCircle) {
  Image image;
  image.reshape(1, 4, 3);
  image.pixels = {200, 0, 0, 0, 100, 0, 30, 30, 90, 77, 77, 77};
  const auto third = changed(image, {.hue = 1.0 / 3}).pixels;
  const std::vector<uint8_t> expected = {0, 200, 0, 0, 0, 100, 90, 30, 30, 77, 77, 77};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(third[i], expected[i], 1) << i;
  const Image cube = colours();
  const Image there_and_back = changed(changed(cube, {.hue = 0.3}), {.hue = -0.3});
  for (size_t i = 0; i < cube.pixels.size(); ++i)
    ASSERT_NEAR(there_and_back.pixels[i], cube.pixels[i], 2);
}

TEST(Jitter, ChangesGreyImagesInBrightnessAndContrastOnly) {
  const Image grey = painted(9, 9, 1);
  EXPECT_EQ(changed(grey, {.saturation = 3, .hue = 0.2}).pixels, grey.pixels);
  EXPECT_EQ(changed(grey, {.brightness = 0.5}).pixels[5], grey.pixels[5] / 2);
  const auto flat = changed(grey, {.contrast = 0}).pixels;
  EXPECT_EQ(*std::ranges::min_element(flat), *std::ranges::max_element(flat));
}

TEST(Jitter, AppliesChangesInTheirOrder) {
  const Image image = colours();
  Jitter jitter{.brightness = 3, .saturation = 0.1};
  const Image first = changed(image, jitter);
  EXPECT_EQ(first.pixels, changed(changed(image, {.brightness = 3}), {.saturation = 0.1}).pixels);
  std::ranges::reverse(jitter.order);
  EXPECT_EQ(changed(image, jitter).pixels,
            changed(changed(image, {.saturation = 0.1}), {.brightness = 3}).pixels);
  EXPECT_NE(changed(image, jitter).pixels, first.pixels);
}

// Builds with sanitizers have no clones for newer processors, and give the same bytes.
TEST(Jitter, GivesTheSameBytesOnAllProcessors) {
  const Image image =
      changed(colours(), {.brightness = 1.2, .contrast = 0.7, .saturation = 1.9, .hue = -0.23});
  const std::string_view bytes(reinterpret_cast<const char*>(image.pixels.data()),
                               image.pixels.size());
  EXPECT_EQ(sha256_hex(bytes).substr(0, 16), "9e585ac8aff53352");
}

TEST(Jitter, IsDrawnFromItsRangesInEveryOrder) {
  std::set<std::array<ColourChange, 4>> orders;
  for (uint64_t bits = 0; bits < 1000; ++bits) {
    Random random(bits);
    const Jitter jitter = draw_jitter({.brightness = factors_around_one(0.4),
                                       .contrast = factors_around_one(2),
                                       .hue = shifts_around_zero(0.1)},
                                      random);
    EXPECT_TRUE(*jitter.brightness >= 0.6 && *jitter.brightness <= 1.4);
    EXPECT_TRUE(*jitter.contrast >= 0 && *jitter.contrast <= 3);
    EXPECT_FALSE(jitter.saturation.has_value());
    EXPECT_LE(std::abs(*jitter.hue), 0.1);
    orders.insert(jitter.order);
  }
  EXPECT_EQ(orders.size(), 24U);
}

TEST(Jitter, IsDrawnBetweenTheEndsOfAPair) {
  double least = 1, most = 0;
  for (uint64_t bits = 0; bits < 1000; ++bits) {
    Random random(bits);
    const Jitter jitter = draw_jitter(
        {.brightness = {0.2, 0.7}, .contrast = {1, 1}, .saturation = {2, 2}, .hue = {-0.3, 0}},
        random);
    least = std::min(least, *jitter.brightness);
    most = std::max(most, *jitter.brightness);
    EXPECT_FALSE(jitter.contrast.has_value());
    EXPECT_EQ(*jitter.saturation, 2);
    EXPECT_TRUE(*jitter.hue >= -0.3 && *jitter.hue <= 0);
  }
  EXPECT_NEAR(least, 0.2, 0.01);
  EXPECT_NEAR(most, 0.7, 0.01);
}

TEST(Jitter, RefusesWhatIsOutsideItsRanges) {
  Random random(1);
  for (const JitterOptions& options :
       {JitterOptions{.brightness = factors_around_one(-0.1)},
        JitterOptions{.brightness = {0.5, 0.4}}, JitterOptions{.brightness = {-0.1, 1}},
        JitterOptions{.contrast = factors_around_one(NAN)}, JitterOptions{.contrast = {NAN, 1}},
        JitterOptions{.saturation = factors_around_one(INFINITY)},
        JitterOptions{.hue = shifts_around_zero(0.6)}, JitterOptions{.hue = {0.1, -0.1}}})
    message_of(ErrorCode::invalid_argument, [&] { draw_jitter(options, random); });
  Image image = painted(2, 2, 4);
  message_of(ErrorCode::invalid_argument, [&] { apply_jitter({}, image); });
}

}  // namespace
}  // namespace trireme::images::colour_test
