#include <gtest/gtest.h>

#include <trireme/images/regions.h>
#include <cmath>

#include "../base/expect_error.h"

namespace trireme::images::regions_test {
namespace {

TEST(Random, GivesTheSameNumbersForTheSameBits) {
  Random a(7), b(7), c(8);
  EXPECT_EQ(a.bits(), b.bits());
  EXPECT_NE(b.bits(), c.bits());
  // These hold on every machine, so that a run can be repeated elsewhere.
  Random fixed(1);
  EXPECT_EQ(fixed.bits(), 0x5e41ab087439611eULL);
  EXPECT_EQ(fixed.below(1000), 914);
}

TEST(Random, HasTheMomentsOfItsDistributions) {
  Random random(3);
  constexpr int kDraws = 20000;
  double uniform = 0, normal = 0, squares = 0, beta = 0, narrow = 0;
  int64_t below = 0;
  for (int i = 0; i < kDraws; ++i) {
    uniform += random.uniform() / kDraws;
    const double x = random.normal();
    normal += x / kDraws;
    squares += x * x / kDraws;
    beta += std::pow(random.beta(0.3, 0.3) - 0.5, 2) / kDraws;
    narrow += random.beta(2, 6) / kDraws;
    const int64_t n = random.below(7);
    ASSERT_TRUE(n >= 0 && n < 7);
    below += n;
  }
  EXPECT_NEAR(uniform, 0.5, 0.01);
  EXPECT_NEAR(normal, 0, 0.03);
  EXPECT_NEAR(squares, 1, 0.05);
  EXPECT_NEAR(beta, 1 / (4 * 1.6), 0.01);  // The variance of Beta(a, a) is 1 / (4 (2 a + 1)).
  EXPECT_NEAR(narrow, 0.25, 0.01);
  EXPECT_NEAR(static_cast<double>(below) / kDraws, 3, 0.1);
}

TEST(RandomResizedCrop, StaysInTheImageAndInItsRanges) {
  for (uint64_t bits = 0; bits < 2000; ++bits) {
    Random random(bits);
    const Crop part = random_resized_crop({427, 640}, 0.08, 1, 0.75, 4.0 / 3, random);
    check_crop(part, {427, 640});
    const double area = static_cast<double>(part.height * part.width) / (427 * 640);
    const double ratio = static_cast<double>(part.width) / static_cast<double>(part.height);
    EXPECT_TRUE(area > 0.079 && area <= 1) << area;
    EXPECT_TRUE(ratio > 0.74 && ratio < 1.35) << ratio;
  }
}

TEST(RandomResizedCrop, FallsBackToTheLargestCentralPart) {
  Random random(1);
  EXPECT_EQ(random_resized_crop({10, 1000}, 0.9, 1, 0.75, 4.0 / 3, random),
            (Crop{0, 493, 10, 13}));
  EXPECT_EQ(random_resized_crop({1000, 10}, 0.9, 1, 0.75, 4.0 / 3, random),
            (Crop{493, 0, 13, 10}));
  EXPECT_EQ(random_resized_crop({1, 1000}, 0.9, 1, 0.01, 0.02, random).width, 1);
}

TEST(RandomResizedCrop, RefusesRangesThatAreNone) {
  Random random(1);
  const auto refused = [&](double a, double b, double c, double d) {
    message_of(ErrorCode::invalid_argument,
               [&] { random_resized_crop({8, 8}, a, b, c, d, random); });
  };
  refused(0.5, 0.4, 1, 1);
  refused(0.5, 1.1, 1, 1);
  refused(NAN, 1, 1, 1);
  refused(0.1, 1, 0, 1);
  refused(0.1, 1, 2, 1);
}

TEST(Crops, AreCentralOrAnywhere) {
  EXPECT_EQ(central_crop({100, 200}, {50, 50}), (Crop{0, 50, 100, 100}));
  EXPECT_EQ(central_crop({100, 50}, {10, 20}), (Crop{37, 0, 25, 50}));
  Random random(5);
  bool moved = false;
  for (int i = 0; i < 50; ++i) {
    const Crop part = random_crop({40, 40}, {32, 30}, random);
    check_crop(part, {40, 40});
    moved |= part.top > 0 && part.left > 0;
  }
  EXPECT_TRUE(moved);
  message_of(ErrorCode::invalid_argument, [&] { random_crop({8, 8}, {9, 8}, random); });
}

TEST(RandomErase, DrawsBoxesOfTheWantedSizes) {
  int erased = 0;
  for (uint64_t bits = 0; bits < 2000; ++bits) {
    Random random(bits);
    const auto box = random_erase({224, 200}, {}, random);
    if (!box) continue;
    ++erased;
    check_crop(box->box, {224, 200});
    const double area = static_cast<double>(box->box.height * box->box.width) / (224 * 200);
    EXPECT_TRUE(area > 0.018 && area < 0.34) << area;
  }
  EXPECT_NEAR(erased, 1000, 100);
  Random random(1);
  EXPECT_FALSE(random_erase({8, 8}, {.probability = 1, .scale_low = 1, .scale_high = 1}, random));
  message_of(ErrorCode::invalid_argument,
             [&] { random_erase({8, 8}, {.probability = 2}, random); });
}

}  // namespace
}  // namespace trireme::images::regions_test
