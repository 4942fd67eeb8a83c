#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <trireme/tensor/hollow.h>
#include <cstring>

namespace trireme::hollow_test {
namespace {

TEST(Hollow, ATensorKeepsItsFormAndNoMemory) {
  const at::Tensor tensor = at::randn({30, 20}).requires_grad_();
  const at::Tensor view = tensor.t();
  EXPECT_FALSE(is_hollow(tensor));
  make_hollow(tensor);
  EXPECT_TRUE(is_hollow(tensor));
  EXPECT_TRUE(is_hollow(view)) << "a view shares the storage";
  EXPECT_EQ(tensor.sizes().vec(), (std::vector<int64_t>{30, 20}));
  EXPECT_EQ(tensor.strides().vec(), (std::vector<int64_t>{20, 1}));
  EXPECT_TRUE(tensor.requires_grad());
  make_hollow(tensor);
  EXPECT_TRUE(is_hollow(tensor));
}

TEST(Hollow, ValuesCannotBeTouched) {
  const at::Tensor tensor = at::randn({30, 20});
  const at::Tensor other = at::randn({30, 20});
  make_hollow(tensor);
  EXPECT_ANY_THROW(tensor.sum());
  EXPECT_ANY_THROW(at::add(other, tensor));
  EXPECT_ANY_THROW(at::mm(other, tensor.t()));
  EXPECT_ANY_THROW(tensor.zero_());
  EXPECT_ANY_THROW(tensor.clone());
  EXPECT_ANY_THROW(at::add_out(const_cast<at::Tensor&>(tensor), other, other));
  EXPECT_ANY_THROW(tensor[0][0].item<float>());
  EXPECT_ANY_THROW(tensor.data_ptr<float>());
  EXPECT_ANY_THROW(tensor.data_ptr());
  EXPECT_ANY_THROW(tensor.const_data_ptr());
  EXPECT_ANY_THROW(tensor.uniform_());
}

TEST(Hollow, TheErrorSaysWhyAndWhatToDo) {
  const at::Tensor tensor = at::randn({3});
  make_hollow(tensor);
  try {
    tensor.sum();
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("hollow"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("materialise"));
  }
}

TEST(Hollow, MemoryThatIsGivenCanBeUsed) {
  const at::Tensor tensor = at::randn({30, 20});
  make_hollow(tensor);
  give_memory(tensor);
  EXPECT_FALSE(is_hollow(tensor));
  tensor.fill_(2);
  EXPECT_EQ(tensor.sum().item<float>(), 1200);
  give_memory(tensor);
  EXPECT_EQ(tensor.sum().item<float>(), 1200) << "a tensor with memory keeps it";
}

TEST(Hollow, ATensorOfNoElementsIsNeverHollow) {
  const at::Tensor tensor = at::empty({0, 5});
  make_hollow(tensor);
  EXPECT_FALSE(is_hollow(tensor));
  EXPECT_EQ(tensor.sum().item<float>(), 0);
}

// Sharded parameters are freed after forward and gathered again before backward.
TEST(Hollow, BackwardIsTheSameIfTheValuesComeBackBeforeIt) {
  at::manual_seed(3);
  const at::Tensor input = at::randn({7, 6});
  const at::Tensor first = at::randn({5, 6}).requires_grad_();
  const at::Tensor second = at::randn({4, 5}).requires_grad_();
  const auto loss = [&] {
    return at::linear(at::linear(input, first).tanh(), second).pow(2).sum();
  };
  loss().backward();
  const at::Tensor expected_first = first.grad().clone(), expected_second = second.grad().clone();
  first.mutable_grad().reset();
  second.mutable_grad().reset();

  const at::Tensor first_values = first.detach().clone(), second_values = second.detach().clone();
  const at::Tensor again = loss();
  for (const at::Tensor& parameter : {first, second}) make_hollow(parameter);
  EXPECT_ANY_THROW(again.backward(at::Tensor(), /*retain_graph=*/true));
  give_memory(first);
  give_memory(second);
  first.variable_data().copy_(first_values);
  second.variable_data().copy_(second_values);
  first.mutable_grad().reset();
  second.mutable_grad().reset();
  again.backward();
  EXPECT_TRUE(at::equal(first.grad(), expected_first));
  EXPECT_TRUE(at::equal(second.grad(), expected_second));
}

TEST(Hollow, MemoryMovesBetweenStorages) {
  const at::Tensor from = at::full({8}, 3.0), to = at::zeros({8});
  const void* const place = from.const_data_ptr();
  make_hollow(to);
  move_memory(from.storage(), to.storage());
  EXPECT_TRUE(is_hollow(from));
  EXPECT_EQ(to.const_data_ptr(), place);
  EXPECT_EQ(to.sum().item<float>(), 24);
  EXPECT_ANY_THROW(move_memory(from.storage(), to.storage())) << "there is nothing to move";
}

}  // namespace
}  // namespace trireme::hollow_test
