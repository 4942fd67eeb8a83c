#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <trireme/parallel/counted_gradients.h>
#include <stdexcept>

namespace trireme::counted_gradients_test {
namespace {

class Counted : public testing::Test {
 protected:
  Counted()
      : counted_({first_, second_}, {.lie_aside = [this] { return lies_aside_; },
                                     .factor = [this] { return factor_; }}) {
    EXPECT_TRUE(counted_.begin());
    EXPECT_TRUE(counted_.begin());
    first_.register_hook([this](const at::Tensor&) { seen_ = first_.grad().defined(); });
  }
  void expect(double first, double second) const {
    EXPECT_TRUE(at::equal(first_.grad(), at::full({2}, first)));
    EXPECT_TRUE(at::equal(second_.grad(), at::full({2}, second)));
  }

  at::Tensor first_ = at::ones({2}).requires_grad_(), second_ = at::ones({2}).requires_grad_();
  bool lies_aside_ = true, seen_ = false;
  double factor_ = 1;
  CountedGradients counted_;
};

TEST_F(Counted, GradientsLieAsideWhileBackwardRunsAndAddUpBehindIt) {
  (first_ + 2 * second_).sum().backward();
  expect(1, 2);
  (3 * first_).sum().backward();  // It does not reach the second one.
  EXPECT_FALSE(seen_);
  expect(4, 2);
  factor_ = 0.5;
  (first_ + second_).sum().backward();
  expect(3, 2);
  lies_aside_ = false;
  first_.sum().backward();
  EXPECT_TRUE(seen_);
  expect(4, 2);
}

TEST_F(Counted, GradientsComeBackIfBackwardFails) {
  (first_ + 2 * second_).sum().backward();
  const at::Tensor product = first_ * second_;
  product.register_hook([](const at::Tensor&) { throw std::runtime_error("as the test wants"); });
  EXPECT_ANY_THROW(product.sum().backward());
  expect(1, 2);
}

TEST_F(Counted, GradientsThatAreFunctionsStayFunctions) {
  first_.square().sum().backward({}, /*keep_graph=*/true, /*create_graph=*/true);
  second_.sum().backward({}, true, true);
  EXPECT_TRUE(first_.grad().requires_grad());
  first_.square().sum().backward({}, true, true);
  EXPECT_TRUE(first_.grad().requires_grad());
  expect(4, 1);
}

}  // namespace
}  // namespace trireme::counted_gradients_test
