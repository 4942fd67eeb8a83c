#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <trireme/parallel/counted_gradients.h>
#include <stdexcept>
#include <thread>

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
  // As LibTorch's clip_grad_norm_() writes, behind the version of the tensor.
  first_.mutable_grad().data().mul_(1);
  EXPECT_NO_THROW(first_.sum().backward());
  first_.mutable_grad().data().mul_(0.5);
  EXPECT_THROW(first_.sum().backward(), std::runtime_error);
  has_own_alone_ = false;
  counted_.forget();
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
  const CountedGradients apart({at::ones({2})}, quiet);
  EXPECT_FALSE(other.differs_in_quiet());
  const CountedGradients shares({third}, quiet);
  EXPECT_TRUE(other.differs_in_quiet());
}

// Autograd's thread of a device asks in the place of the thread that calls backward.
TEST_F(Counted, AnotherThreadKnowsTheEnginesOfTheLoop) {
  CountedGradients other({second_}, callbacks());
  second_.sum().backward();
  bool is_there = true, differs = true;
  std::thread([&] {
    const auto left = other.leave_to_others();
    is_there = second_.grad().defined();
    differs = other.differs_in_quiet();
  }).join();
  EXPECT_FALSE(is_there);
  EXPECT_FALSE(differs);
}

TEST_F(Counted, AnEngineBelongsToTheThreadThatBeginsIt) {
  CountedGradients other({second_}, callbacks());
  (2 * second_).sum().backward();
  std::thread([&] {
    other.begin();
    const auto left = other.leave_to_others();
    EXPECT_TRUE(second_.grad().defined());  // No engine of this thread is before it.
  }).join();
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
