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
  Counted() : counted_({first_, second_}, callbacks()) {
    counted_.begin();
    counted_.begin();
    first_.register_hook([this](const at::Tensor&) { seen_ = first_.grad().defined(); });
  }
  CountedGradients::Callbacks callbacks() {
    return {.lie_aside = [this] { return lies_aside_; },
            .has_own_alone = [this] { return has_own_alone_; },
            .is_quiet = [this] { return has_own_alone_; },
            .refuse_writes = [] { throw std::runtime_error("written"); }};
  }
  void expect(double first, double second) const {
    EXPECT_TRUE(at::equal(first_.grad(), at::full({2}, first)));
    EXPECT_TRUE(at::equal(second_.grad(), at::full({2}, second)));
  }

  at::Tensor first_ = at::ones({2}).requires_grad_(), second_ = at::ones({2}).requires_grad_();
  bool lies_aside_ = true, has_own_alone_ = false, seen_ = false;
  CountedGradients counted_;
};

TEST_F(Counted, GradientsLieAsideWhileBackwardRunsAndAddUpBehindIt) {
  (first_ + 2 * second_).sum().backward();
  expect(1, 2);
  (3 * first_).sum().backward();  // It does not reach the second one.
  EXPECT_FALSE(seen_);
  expect(4, 2);
  lies_aside_ = false;
  first_.sum().backward();
  EXPECT_TRUE(seen_);
  expect(5, 2);
}

TEST_F(Counted, GradientsStayAsideAsLongAsOneRankAloneKnowsOthers) {
  (first_ + 2 * second_).sum().backward();
  has_own_alone_ = true;
  (3 * first_).sum().backward();
  expect(3, 0);
  counted_.multiply(2);
  (4 * first_).sum().backward();
  expect(10, 0);
  has_own_alone_ = false;
  second_.sum().backward();
  expect(11, 3);
}

TEST_F(Counted, GradientsThatAreZeroedDoNotComeBack) {
  (first_ + 2 * second_).sum().backward();
  has_own_alone_ = true;
  first_.sum().backward();
  first_.mutable_grad().zero_();
  second_.mutable_grad().reset();
  has_own_alone_ = false;
  (first_ + second_).sum().backward();
  expect(1, 1);
}

TEST_F(Counted, OtherWritesWhileGradientsLieAsideAreRefused) {
  first_.sum().backward();
  has_own_alone_ = true;
  first_.sum().backward();
  first_.mutable_grad().mul_(0.5);
  EXPECT_THROW(first_.sum().backward(), std::runtime_error);
}

TEST_F(Counted, GradientsOfTheEnginesBeforeComeBackIfABackwardCannotBegin) {
  const at::Tensor third = at::ones({2}).requires_grad_();
  auto refusing = callbacks();
  refusing.lie_aside = []() -> bool { throw std::runtime_error("as the test wants"); };
  (first_ + 2 * second_).sum().backward();
  CountedGradients other({third}, refusing);
  other.begin();
  EXPECT_THROW(first_.sum().backward(), std::runtime_error);
  expect(1, 2);
}

TEST_F(Counted, TheFirstOfTwoEnginesHasTheParametersOfBoth) {
  const at::Tensor third = at::ones({2}).requires_grad_();
  CountedGradients other({second_, third}, callbacks());
  other.begin();
  (first_ + 2 * second_ + 3 * third).sum().backward();
  {
    const auto left = other.leave_to_others();
    EXPECT_FALSE(second_.grad().defined());
    EXPECT_TRUE(third.grad().defined());
  }
  other.multiply(2);
  expect(1, 2);
  EXPECT_TRUE(at::equal(third.grad(), at::full({2}, 6.0)));
  EXPECT_FALSE(other.differs_in_quiet());
  auto quiet = callbacks();
  quiet.is_quiet = [] { return true; };
  CountedGradients apart({at::ones({2})}, quiet), shares({third}, quiet);
  apart.begin();
  EXPECT_FALSE(other.differs_in_quiet());
  shares.begin();
  EXPECT_TRUE(other.differs_in_quiet());
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
