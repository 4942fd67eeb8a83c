// Saved tensors that are elsewhere between forward and a backward in two halves: each comes back
// once, and stays for the second half only if that needs it.
#include "split_cases.h"

#include <trireme/tensor/recompute.h>
#include <trireme/tensor/stored_tensors.h>

namespace trireme::split_backward_test {
namespace {

constexpr int64_t kWidth = 16, kRows = 4, kBytes = kRows * kWidth * 4;

std::shared_ptr<KeeperSetting> counted_keeper() {
  auto setting = std::make_shared<KeeperSetting>();
  setting->place = "the block 'middle'";
  setting->bytes = std::make_shared<ActivationBytes>();
  return setting;
}

// The weight of the first layer is computed from a parameter, so that its own operations wait
// for the second half.
struct Middle {
  Tensors weights = {parameter({kWidth, kWidth}, 1), parameter({kWidth}, 2),
                     parameter({kWidth, kWidth}, 3), parameter({kWidth}, 4)};
  int runs = 0;
  Tensors operator()(const Tensors& x) {
    ++runs;
    const at::Tensor weight = at::sigmoid(weights[0].exp());
    const at::Tensor hidden = at::gelu(at::linear(x[0], weight, weights[1]));
    return {at::linear(at::dropout(hidden, 0.3, true), weights[2], weights[3])};
  }
};

TEST(SplitMemory, ABlockRunsTwiceAndGivesTheBitsOfOneBackward) {
  Middle kept, again;
  // A leaf would be no activation.
  const Case plain{[&](const Tensors& x) { return kept({x[0] * 2}); },
                   {numbers({kRows, kWidth}, 50)},
                   kept.weights};
  const Gradients reference = one_backward(plain);
  const auto setting = counted_keeper();
  RecomputedBlock block({[&](const Tensors& x) { return again(x); }, {}, nullptr});
  Pass pass = forward({[&](const Tensors& x) { return block({x[0] * 2}, setting); },
                       {numbers({kRows, kWidth}, 50)},
                       again.weights});
  EXPECT_EQ(again.runs, 1);
  EXPECT_EQ(setting->bytes->current(), kBytes) << "its input alone";
  SplitBackward split(pass.outputs, pass.gradients, pass.inputs);
  pass.outputs.clear();
  const Tensors inputs = split.input_gradients();
  EXPECT_EQ(again.runs, 2);
  // Both inputs of the layers, and the tensors that make the first weight.
  EXPECT_LE(setting->bytes->current(), 2 * kBytes + 2 * kWidth * kWidth * 4);
  EXPECT_GE(setting->bytes->current(), 2 * kBytes);
  split.weight_gradients();
  EXPECT_EQ(again.runs, 2);
  EXPECT_EQ(setting->bytes->current(), 0);
  expect_equal(inputs, reference.inputs, 0, "input");
  expect_equal(take_gradients(again.weights), reference.parameters, 0, "parameter");
}

// Counts how often each storage is asked for.
class CountingPlace : public StoragePlace {
 public:
  bool takes(int64_t, at::ScalarType) const override { return true; }
  std::unique_ptr<StoredStorage> put(c10::Storage storage) override {
    struct Counted : StoredStorage {
      Counted(c10::Storage kept, int& reads) : storage(std::move(kept)), times(reads) {}
      c10::Storage get() override {
        ++times;
        return storage;
      }
      c10::Storage storage;
      int& times;
    };
    reads.push_back(std::make_unique<int>(0));
    return std::make_unique<Counted>(std::move(storage), *reads.back());
  }
  std::vector<std::unique_ptr<int>> reads;
};

TEST(SplitMemory, AStorageIsReadBackOnce) {
  const Tensors weights = {parameter({kWidth, kWidth}, 1), parameter({kWidth, kWidth}, 2)};
  const auto place = std::make_shared<CountingPlace>();
  const auto known = std::make_shared<StoredTensors::KnownStorages>();
  StoredTensors stored(counted_keeper(), place, known);
  const Part part = [&](const Tensors& x) {
    const SavedTensorScope scope(&stored);
    return Tensors{at::linear(at::linear(x[0], weights[0]).exp(), weights[1])};
  };
  Pass pass = forward({part, {numbers({kRows, kWidth}, 50)}, weights});
  SplitBackward split(pass.outputs, pass.gradients, pass.inputs);
  pass.outputs.clear();
  split.input_gradients();
  std::vector<int> after_first;
  for (const auto& count : place->reads) after_first.push_back(*count);
  split.weight_gradients();
  ASSERT_EQ(place->reads.size(), after_first.size());
  ASSERT_GE(after_first.size(), 1u);
  for (size_t i = 0; i < after_first.size(); ++i) EXPECT_EQ(*place->reads[i], after_first[i]);
}

}  // namespace
}  // namespace trireme::split_backward_test
