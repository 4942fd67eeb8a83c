#include <trireme/checkpoint/safetensors.h>

#include <gmock/gmock.h>
#include <trireme/checkpoint/digest.h>

#include "checkpoint_testing.h"
#include "file_size_limit.h"

namespace trireme::checkpoint::safetensors_test {
namespace {

using plan::DType;
using testing::ElementsAre;

class Safetensors : public TemporaryFolder {
 protected:
  std::filesystem::path path_ = folder_ / "model.safetensors";
};

TEST_F(Safetensors, GivesBackWhatWasWritten) {
  const DType dtypes[] = {DType::float32, DType::float64, DType::float16, DType::bfloat16,
                          DType::int32,   DType::int64,   DType::uint8};
  std::vector<OwnedTensor> tensors;
  for (const DType dtype : dtypes)
    tensors.emplace_back("layer." + std::string(to_string(dtype)), std::vector<int64_t>{3, 5},
                         dtype, 7);
  std::vector<TensorView> views;
  for (const OwnedTensor& tensor : tensors) views.push_back(tensor.view());
  write_safetensors(path_, views, {{"format", "pt"}});

  const SafetensorsFile file(path_);
  ASSERT_EQ(file.tensors().size(), tensors.size());
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
  for (const OwnedTensor& tensor : tensors) {
    const TensorView* found = file.find(tensor.spec.name);
    ASSERT_NE(found, nullptr) << tensor.spec.name;
    EXPECT_EQ(found->spec.dtype, tensor.spec.dtype);
    EXPECT_EQ(found->spec.shape, tensor.spec.shape);
    EXPECT_TRUE(std::equal(found->bytes.begin(), found->bytes.end(), tensor.bytes.begin(),
                           tensor.bytes.end()));
  }
  EXPECT_EQ(file.find("layer"), nullptr);
}

TEST_F(Safetensors, HoldsScalarsEmptyTensorsAndNone) {
  const OwnedTensor scalar("scalar", {}), empty("empty", {0, 4});
  write_safetensors(path_, {scalar.view(), empty.view()});
  const SafetensorsFile two(path_);
  EXPECT_EQ(two.find("scalar")->bytes.size(), 4u);
  EXPECT_THAT(two.find("empty")->spec.shape, ElementsAre(0, 4));
  EXPECT_TRUE(two.find("empty")->bytes.empty());

  write_safetensors(path_, {});
  EXPECT_TRUE(SafetensorsFile(path_).tensors().empty());
}

TEST_F(Safetensors, PutsEachTensorAtAMultipleOfItsElementSize) {
  const OwnedTensor odd("odd", {3}, DType::uint8), half("half", {3}, DType::float16),
      single("single", {5}), wide("wide", {2}, DType::int64);
  write_safetensors(path_, {odd.view(), half.view(), single.view(), wide.view()});
  const SafetensorsFile file(path_);
  std::vector<std::string> order;
  for (const TensorView& tensor : file.tensors()) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.bytes.data()) %
                  static_cast<size_t>(plan::bytes_of(tensor.spec.dtype)),
              0u)
        << tensor.spec.name;
    order.push_back(tensor.spec.name);
  }
  EXPECT_THAT(order, ElementsAre("wide", "single", "half", "odd"));
}

TEST_F(Safetensors, StartsTheDataAtAMultipleOf64Bytes) {
  const OwnedTensor tensor("w", {2});
  write_safetensors(path_, {tensor.view()});
  EXPECT_EQ((std::filesystem::file_size(path_) - 8) % 64, 0u);
}

TEST_F(Safetensors, KeepsNamesThatNeedEscapes) {
  const OwnedTensor tensor("a \"quoted\"\n\\ name, grün", {1});
  write_safetensors(path_, {tensor.view()});
  EXPECT_NE(SafetensorsFile(path_).find(tensor.spec.name), nullptr);
}

TEST_F(Safetensors, ReturnsTheDigestOfTheFile) {
  const OwnedTensor tensor("big", {1 << 20});  // 4 MiB: several chunks.
  const std::string digest = write_safetensors(path_, {tensor.view()});
  EXPECT_EQ(digest, digest_of_file(path_, digest, 2));
}

TEST_F(Safetensors, RefusesATensorThatDoesNotFitItsBytes) {
  const OwnedTensor tensor("w", {2});
  TensorView view = tensor.view();
  view.spec.shape = {3};
  EXPECT_TRUE(fails_with(ErrorCode::invalid_argument, {"w", "8 bytes"},
                         [&] { write_safetensors(path_, {view}); }));
  view.spec.shape = {-1, -2};
  EXPECT_TRUE(
      fails_with(ErrorCode::invalid_argument, {"w"}, [&] { write_safetensors(path_, {view}); }));
}

TEST_F(Safetensors, RefusesNamesThatTheFormatCannotHold) {
  const OwnedTensor tensor("w", {2}), reserved("__metadata__", {2}), broken("\xff", {2});
  EXPECT_TRUE(fails_with(ErrorCode::invalid_argument, {"\"w\"", "twice"},
                         [&] { write_safetensors(path_, {tensor.view(), tensor.view()}); }));
  EXPECT_TRUE(fails_with(ErrorCode::invalid_argument, {"reserved"},
                         [&] { write_safetensors(path_, {reserved.view()}); }));
  EXPECT_TRUE(fails_with(ErrorCode::invalid_argument, {"UTF-8"},
                         [&] { write_safetensors(path_, {broken.view()}); }));
  EXPECT_TRUE(names_in(folder_).empty());
}

TEST_F(Safetensors, LeavesTheOldFileWhenTheDiskIsFull) {
  const OwnedTensor small("w", {4}), big("w", {1 << 18});
  write_safetensors(path_, {small.view()});
  {
    const FileSizeLimit limit(100'000);
    EXPECT_TRUE(fails_with(ErrorCode::io,
                           {folder_, "model.safetensors", "File too large", "100000 bytes"},
                           [&] { write_safetensors(path_, {big.view()}); }));
  }
  EXPECT_THAT(names_in(folder_), ElementsAre("model.safetensors"));
  EXPECT_EQ(SafetensorsFile(path_).find("w")->bytes.size(), 16u);
}

TEST_F(Safetensors, SaysWhyAFileCannotBeWrittenOrOpened) {
  const OwnedTensor tensor("w", {2});
  const auto missing = folder_ / "no" / "such" / "file";
  EXPECT_TRUE(fails_with(ErrorCode::io, {missing.parent_path(), "No such file"},
                         [&] { write_safetensors(missing, {tensor.view()}); }));
  EXPECT_TRUE(fails_with(ErrorCode::not_found, {missing, "No such file"},
                         [&] { SafetensorsFile file(missing); }));
  EXPECT_TRUE(fails_with(ErrorCode::io, {folder_, "Is a directory"},
                         [&] { SafetensorsFile file(folder_); }));
}

}  // namespace
}  // namespace trireme::checkpoint::safetensors_test
