#include <gtest/gtest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <trireme/images/mix.h>
#include <trireme/images/resize.h>
#include <cmath>

#include "../base/expect_error.h"
#include "encoded.h"

namespace trireme::images::mix_test {
namespace {

TEST(MixUp, AddsEachSampleToItsNeighbourAndTargetsAlike) {
  const at::Tensor before = at::rand({4, 3, 5, 6});
  at::Tensor batch = before.clone();
  const Mix mix{.lambda = 0.7};
  mix_samples(batch, mix);
  EXPECT_TRUE(batch.allclose(before.mul(0.7).add(before.roll(1, 0), 0.3)));
  const at::Tensor weights = mix_targets(at::arange(4), 4, mix);
  EXPECT_TRUE(weights[0].allclose(at::tensor({0.7F, 0.F, 0.F, 0.3F})));
  EXPECT_TRUE(weights[2].allclose(at::tensor({0.F, 0.3F, 0.7F, 0.F})));
  // Weights may be mixed again.
  EXPECT_TRUE(mix_targets(weights, 4, mix).sum(1).allclose(at::tensor({1.F, 1.F, 1.F, 1.F})));
}

TEST(MixUp, RoundsTheSumOfNumbersOf16BitsOnce) {
  const at::Tensor before = at::rand({4, 3, 5, 6}).to(at::kBFloat16);
  at::Tensor batch = before.clone(), wide = before.to(at::kFloat);
  mix_samples(batch, {.lambda = 0.3});
  mix_samples(wide, {.lambda = 0.3});
  EXPECT_EQ(batch.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::equal(batch, wide.to(at::kBFloat16)));
}

TEST(CutMix, PutsThePartOfTheNeighbourIntoTheBox) {
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    const at::Tensor before = at::rand({3, 2, 6, 8}).contiguous(format);
    at::Tensor batch = before.clone();
    mix_samples(batch, {.lambda = 0.75, .box = Crop{1, 2, 3, 4}});
    at::Tensor expected = before.clone();
    expected.narrow(2, 1, 3).narrow(3, 2, 4).copy_(
        before.roll(1, 0).narrow(2, 1, 3).narrow(3, 2, 4));
    EXPECT_TRUE(at::equal(batch, expected));
  }
}

TEST(CutMix, WeighsBySizeOfTheBoxThatLiesInTheImage) {
  bool cut = false;
  for (uint64_t bits = 0; bits < 500; ++bits) {
    Random random(bits);
    const Mix mix = draw_cutmix(1, {30, 40}, random);
    const Crop& box = mix.box.value();
    EXPECT_GE(box.top, 0);
    EXPECT_GE(box.left, 0);
    EXPECT_LE(box.top + box.height, 30);
    EXPECT_LE(box.left + box.width, 40);
    EXPECT_NEAR(mix.lambda, 1 - static_cast<double>(box.height * box.width) / 1200, 1e-12);
    cut |= box.top == 0 && box.height > 0;
  }
  EXPECT_TRUE(cut);
}

TEST(MixUp, KeepsABatchOfOneAndOfNone) {
  at::Tensor one = at::rand({1, 3, 4, 4});
  const at::Tensor before = one.clone();
  mix_samples(one, {.lambda = 0.4});
  EXPECT_TRUE(one.allclose(before));
  at::Tensor none = at::zeros({0, 3, 4, 4});
  mix_samples(none, {.lambda = 0.4});
  EXPECT_EQ(mix_targets(at::zeros({0}, at::kLong), 5, {}).size(1), 5);
}

TEST(MixUp, RefusesWhatItCannotMix) {
  Random random(1);
  for (const double alpha : {0.0, -1.0, static_cast<double>(NAN), static_cast<double>(INFINITY)})
    message_of(ErrorCode::invalid_argument, [&] { draw_mixup(alpha, random); });
  at::Tensor bytes = at::zeros({2, 3, 4, 4}, at::kByte), flat = at::zeros({2, 9});
  message_of(ErrorCode::invalid_argument, [&] { mix_samples(bytes, {}); });
  message_of(ErrorCode::invalid_argument, [&] { mix_samples(flat, {.box = Crop{0, 0, 1, 1}}); });
  EXPECT_NE(message_of(ErrorCode::invalid_argument, [] { mix_targets(at::arange(4), 3, {}); })
                .find("sample 3 of a batch has class 3"),
            std::string::npos);
  message_of(ErrorCode::invalid_argument, [] { mix_targets(at::rand({4, 2}), 3, {}); });
}

TEST(Resize, KeepsEvenColoursAndCopiesAtTheSameSize) {
  Image even;
  even.reshape(30, 50, 3);
  for (size_t i = 0; i < even.pixels.size(); ++i)
    even.pixels[i] = static_cast<uint8_t>(i % 3 * 70);
  Image out;
  for (const Size to : {Size{7, 9}, Size{60, 20}, Size{30, 50}}) {
    resize(even, to, out);
    EXPECT_EQ(out.size(), to);
    for (size_t i = 0; i < out.pixels.size(); ++i) ASSERT_EQ(out.pixels[i], i % 3 * 70);
  }
  const Image grey = painted(8, 8, 1);
  resize(grey, {4, 4}, out);
  EXPECT_EQ(out.channels, 1);
  message_of(ErrorCode::invalid_argument, [&] { resize(grey, {0, 4}, out); });
  message_of(ErrorCode::invalid_argument, [&] { resize({}, {4, 4}, out); });
}

}  // namespace
}  // namespace trireme::images::mix_test
