#include <ATen/ATen.h>
// This header must come after those of torch.
#include <gmock/gmock.h>

#include <trireme/tensor/swap_file.h>
#include <trireme/tensor/swap_store.h>
#include <cstdlib>
#include <filesystem>
#include <functional>

#include "../base/expect_error.h"
#include "../checkpoint/file_size_limit.h"

namespace trireme::swap_store_test {
namespace {

using ::testing::HasSubstr;

class Swapping : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "trireme-swap-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Everything but the smallest tensors is swapped, and few of them stay in memory.
  std::shared_ptr<SwapStore> store(int64_t limit_bytes = 64 << 10) {
    return make_swap_store({.folder = folder_, .least_bytes = 1024, .limit_bytes = limit_bytes},
                           bytes_);
  }
  std::shared_ptr<KeeperSetting> setting() const {
    auto made = std::make_shared<KeeperSetting>();
    made->place = "the block 'middle'";
    made->bytes = bytes_;
    return made;
  }

  // The gradient of a chain of `length` operations, whose tensors the place stores.
  at::Tensor gradient(std::shared_ptr<StoragePlace> place, int length = 20) const {
    StoredTensors stored(setting(), std::move(place),
                         std::make_shared<StoredTensors::KnownStorages>());
    const at::Tensor leaf = input().requires_grad_();
    at::Tensor x = leaf * 1;
    {
      const SavedTensorScope scope(&stored);
      for (int i = 0; i < length; ++i) x = x.sin() * x.tanh();
    }
    x.sum().backward();
    return leaf.grad();
  }
  static at::Tensor input() { return (at::arange(2048, at::kFloat) * 0.01).cos(); }
  static at::Tensor expected(int length = 20) {
    const at::Tensor leaf = input().requires_grad_();
    at::Tensor x = leaf * 1;
    for (int i = 0; i < length; ++i) x = x.sin() * x.tanh();
    x.sum().backward();
    return leaf.grad();
  }

  std::string folder_;
  std::shared_ptr<ActivationBytes> bytes_ = std::make_shared<ActivationBytes>();
};

TEST_F(Swapping, GivesTheSameGradients) {
  EXPECT_TRUE(gradient(store()).equal(expected()));
  EXPECT_TRUE(gradient(store(/*limit_bytes=*/0)).equal(expected()));
  EXPECT_EQ(bytes_->current(), 0);
}

TEST_F(Swapping, HoldsAsMuchAsItsLimitAndNoMore) {
  gradient(store(), 100);  // 200 saved tensors of 8 KiB.
  EXPECT_EQ(bytes_->peak(), 64 << 10);
}

TEST_F(Swapping, WithoutALimitToKeepItHoldsWhatComputationUses) {
  gradient(store(/*limit_bytes=*/0), 100);
  EXPECT_LE(bytes_->peak(), 5 * 8 << 10);
}

TEST_F(Swapping, WritesNothingBackThatStayedAndReadsTheRestInItsPlace) {
  const auto place = store();
  StoredTensors stored(setting(), place, std::make_shared<StoredTensors::KnownStorages>());
  std::vector<std::unique_ptr<SavedTensor>> saved;
  std::vector<const void*> memory;
  for (int i = 0; i < 20; ++i) {
    const at::Tensor tensor = input() + i;
    memory.push_back(tensor.const_data_ptr());
    saved.push_back(stored.keep(tensor));
  }
  // The limit has room for the last eight.
  for (int i = 19; i >= 12; --i) EXPECT_EQ(saved[i]->get().const_data_ptr(), memory[i]) << i;
  for (int i = 19; i >= 0; --i) {
    EXPECT_TRUE(saved[i]->get().equal(input() + i)) << i;
    saved[i].reset();
  }
  EXPECT_EQ(bytes_->peak(), 64 << 10);
}

TEST_F(Swapping, MakesRoomForWhatIsKept) {
  const auto place = store();
  StoredTensors stored(setting(), place, std::make_shared<StoredTensors::KnownStorages>());
  KeptTensors kept(setting());
  std::vector<std::unique_ptr<SavedTensor>> saved;
  for (int i = 0; i < 8; ++i) saved.push_back(stored.keep(input() + i));
  for (int i = 8; i < 16; ++i) saved.push_back(kept.keep(input() + i));
  EXPECT_EQ(bytes_->peak(), 64 << 10);
  for (int i = 15; i >= 0; --i) EXPECT_TRUE(saved[i]->get().equal(input() + i)) << i;
}

TEST_F(Swapping, LeavesNothingInItsFolder) {
  const auto place = store();
  gradient(place);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(Swapping, MovesASharedStorageOnceAndRestoresViews) {
  const auto place = store();
  auto known = std::make_shared<StoredTensors::KnownStorages>();
  StoredTensors stored(setting(), place, known);
  at::Tensor whole = input().view({32, 64});
  const at::Tensor copy = whole.clone();
  const auto a = stored.keep(whole), b = stored.keep(whole.t()),
             c = stored.keep(whole[3].expand({7, 64}));
  EXPECT_EQ(known->size(), 1);
  whole = at::Tensor();
  EXPECT_TRUE(a->get().equal(copy));
  EXPECT_TRUE(b->get().equal(copy.t()));
  EXPECT_EQ(b->get().strides(), copy.t().strides());
  EXPECT_TRUE(c->get().equal(copy[3].expand({7, 64})));
  EXPECT_EQ(c->get().stride(0), 0);
}

TEST_F(Swapping, RefusesATensorThatChangedInPlace) {
  StoredTensors stored(setting(), store(), std::make_shared<StoredTensors::KnownStorages>());
  const at::Tensor tensor = input();
  const auto saved = stored.keep(tensor);
  tensor.add_(1);
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { saved->get(); }),
              HasSubstr("the block 'middle'"));
}

TEST_F(Swapping, ServesARetainedGraphAgain) {
  StoredTensors stored(setting(), store(), std::make_shared<StoredTensors::KnownStorages>());
  const at::Tensor leaf = input().requires_grad_();
  at::Tensor loss;
  {
    const SavedTensorScope scope(&stored);
    loss = (leaf * 1).sin().exp().sum();
  }
  loss.backward({}, /*retain_graph=*/true);
  const at::Tensor first = leaf.grad().clone();
  leaf.mutable_grad().reset();
  loss.backward();
  EXPECT_TRUE(leaf.grad().equal(first));
}

TEST_F(Swapping, EndsWithAGraphThatIsNeverUsed) {
  {
    std::vector<std::unique_ptr<SavedTensor>> saved;
    StoredTensors stored(setting(), store(), std::make_shared<StoredTensors::KnownStorages>());
    for (int i = 0; i < 30; ++i) saved.push_back(stored.keep(input() + i));
  }
  EXPECT_EQ(bytes_->current(), 0);
}

TEST_F(Swapping, ATornGraphOfAnotherBlockDoesNotDisturb) {
  const auto place = store();
  auto known = std::make_shared<StoredTensors::KnownStorages>();
  StoredTensors stored(setting(), place, known);
  auto first = stored.keep(input());
  auto second = stored.keep(input() + 1);
  first.reset();
  EXPECT_TRUE(second->get().equal(input() + 1));
}

TEST_F(Swapping, AFullDiskIsAnErrorOfTheThreadThatWaits) {
  const auto place = store(/*limit_bytes=*/0);
  const checkpoint::FileSizeLimit full(1 << 20);
  const std::string message = message_of(ErrorCode::io, [&] { gradient(place, 1000); });
  EXPECT_THAT(message, HasSubstr(folder_));
  EXPECT_THAT(message, HasSubstr("memory.swap_dir"));
}

TEST(SwapStore, AFolderThatIsNotThereIsRefused) {
  const auto bytes = std::make_shared<ActivationBytes>();
  EXPECT_THAT(
      message_of(ErrorCode::io, [&] { make_swap_store({.folder = "/nowhere/at/all"}, bytes); }),
      HasSubstr("/nowhere/at/all"));
}

TEST_F(Swapping, AFileUsesFreedRegionsAgain) {
  SwapFile file(folder_);
  const int64_t a = file.take(5000), b = file.take(5000), c = file.take(5000);
  EXPECT_EQ(b - a, 8192);
  file.give_back(a, 5000);
  file.give_back(b, 5000);
  EXPECT_EQ(file.take(16384), a) << "neighbours are joined";
  EXPECT_GE(c, 16384);
}

TEST_F(Swapping, TheRegionsOfAFileThatGrowsAreApartAndInsideIt) {
  SwapFile file(folder_);
  std::map<int64_t, int64_t> taken;  // [place]: bytes.
  for (const int64_t mib : {1, 200, 64, 3, 70}) {
    const int64_t bytes = mib << 20;
    EXPECT_TRUE(taken.emplace(file.take(bytes), bytes).second);
  }
  EXPECT_EQ(taken.begin()->first, 0);
  int64_t end = 0;
  for (const auto& [place, bytes] : taken) {
    EXPECT_GE(place, end);
    end = place + bytes;
  }
  EXPECT_LE(end, file.size());
}

TEST_F(Swapping, AFileHasEverySizeBack) {
  SwapFile file(folder_);
  for (const int64_t size : {int64_t{1}, int64_t{4095}, int64_t{4096}, int64_t{4097},
                             int64_t{1 << 20}, int64_t{(1 << 20) + 1}, int64_t{3'000'001}}) {
    std::vector<std::byte> data(static_cast<size_t>(size) + 1);
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 7 % 251);
    const int64_t place = file.take(size);
    file.write(place, data.data() + 1, size);  // Memory that is not aligned.
    const AlignedBytes back = aligned_bytes(size);
    file.read(place, back.get(), size);
    EXPECT_EQ(std::memcmp(back.get(), data.data() + 1, static_cast<size_t>(size)), 0) << size;
  }
}

TEST_F(Swapping, Bfloat16KeepsHalfTheBytesAndGradientsThatAreClose) {
  const at::Tensor close = gradient(make_bfloat16_place(1024, bytes_), 3), exact = expected(3);
  EXPECT_FALSE(close.equal(exact));
  EXPECT_TRUE(close.allclose(exact, 5e-2, 5e-2));
  EXPECT_EQ(bytes_->current(), 0);
}

}  // namespace
}  // namespace trireme::swap_store_test
