#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <trireme/base/error.h>
#include <trireme/tensor/autocast.h>
#include <trireme/tensor/master_weights.h>
#include <trireme/tensor/parameter_average.h>
#include <thread>

namespace trireme::precision_test {
namespace {

TEST(Autocast, ComputesLinearLayersIn16BitsOnItsThreadOnly) {
  const at::Tensor a = at::randn({4, 8}), b = at::randn({8, 3});
  {
    const Autocast mixed(at::kBFloat16);
    const at::Tensor product = at::matmul(a, b);
    EXPECT_EQ(product.scalar_type(), at::kBFloat16);
    EXPECT_TRUE(at::equal(product, at::matmul(a.to(at::kBFloat16), b.to(at::kBFloat16))));
    {
      const Autocast inner(at::kHalf);
      EXPECT_EQ(at::matmul(a, b).scalar_type(), at::kHalf);
      const Autocast nothing(std::nullopt);
      EXPECT_EQ(at::matmul(a, b).scalar_type(), at::kHalf);
    }
    EXPECT_EQ(at::matmul(a, b).scalar_type(), at::kBFloat16);
    std::thread([&] { EXPECT_EQ(at::matmul(a, b).scalar_type(), at::kFloat); }).join();
  }
  EXPECT_EQ(at::matmul(a, b).scalar_type(), at::kFloat);
}

TEST(Autocast, SeesWeightsThatWereUpdatedInBetween) {
  const Autocast mixed(at::kBFloat16);
  const at::Tensor x = at::ones({1, 2}), weight = at::ones({2, 1}).requires_grad_(true);
  EXPECT_EQ(at::matmul(x, weight).item<float>(), 2);
  {
    const at::NoGradGuard no_grad;
    weight.fill_(3);
  }
  EXPECT_EQ(at::matmul(x, weight).item<float>(), 6);
}

TEST(MasterWeights, AreFloatCopiesOf16BitParametersAlone) {
  const at::Tensor half = at::ones({3}, at::kBFloat16).requires_grad_(true),
                   whole = at::ones({3}).requires_grad_(true);
  const MasterWeights weights({half, whole});
  EXPECT_TRUE(weights.any());
  EXPECT_TRUE(weights.masters()[1].is_same(whole));
  half.mutable_grad() = at::full({3}, 0.5, at::kBFloat16);
  weights.take_gradients();
  EXPECT_FALSE(half.grad().defined());
  EXPECT_EQ(weights.masters()[0].grad().scalar_type(), at::kFloat);
  {
    const at::NoGradGuard no_grad;
    weights.masters()[0].sub_(1e-4);
  }
  weights.publish();
  EXPECT_EQ(half[0].item<float>(), 1) << "rounded";
  EXPECT_LT(weights.masters()[0][0].item<float>(), 1);
  weights.adopt();
  EXPECT_EQ(weights.masters()[0][0].item<float>(), 1);
  EXPECT_FALSE(MasterWeights({whole}).any());
}

TEST(ParameterAverage, FollowsTheParametersByItsDecay) {
  const at::Tensor parameter = at::zeros({2}).requires_grad_(true);
  const ParameterAverage average(0.75, {parameter});
  {
    const at::NoGradGuard no_grad;
    parameter.fill_(4);
  }
  average.update();
  EXPECT_EQ(average.averages()[0][0].item<float>(), 1);
  average.update();
  EXPECT_EQ(average.averages()[0][0].item<float>(), 1.75);
  const at::Tensor row = parameter.detach().narrow(0, 1, 1);
  const auto version = parameter._version();
  {
    const ParameterAverage::InUse use(&average);
    EXPECT_EQ(parameter[0].item<float>(), 1.75);
    EXPECT_EQ(row.item<float>(), 1.75);
    EXPECT_EQ(average.averages()[0][0].item<float>(), 1.75);
  }
  EXPECT_EQ(parameter._version(), version);
  EXPECT_EQ(parameter[0].item<float>(), 4);
  EXPECT_EQ(row.item<float>(), 4);
  average.reset();
  EXPECT_EQ(average.averages()[0][0].item<float>(), 4);
  const ParameterAverage::InUse none(nullptr);
}

TEST(ParameterAverage, RefusesADecayThatDoesNotAverage) {
  for (const double decay : {0.0, 1.0, -0.5, 2.0})
    EXPECT_THROW(ParameterAverage(decay, {}), Error) << decay;
}

}  // namespace
}  // namespace trireme::precision_test
