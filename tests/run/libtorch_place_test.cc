#include <gmock/gmock.h>

#include <fmt/format.h>
#include <trireme/base/built_with.h>
#include <trireme/base/files.h>
#include <trireme/run/libtorch_place.h>
#include <unistd.h>
#include <string>

#include "../base/expect_error.h"

namespace trireme::libtorch_place_test {
namespace {

namespace fs = std::filesystem;

class LibTorchPlace : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "trireme-torch-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  // A folder with the header of a LibTorch of this version.
  fs::path make(const std::string& name, const std::string& version) {
    const fs::path headers = folder_ / name / "include/torch/headeronly";
    fs::create_directories(headers);
    std::string text = "// A header.\n";
    size_t begin = 0;
    for (const char* part : {"MAJOR", "MINOR", "PATCH"}) {
      const size_t end = std::min(version.find('.', begin), version.size());
      text +=
          fmt::format("#define TORCH_VERSION_{} {}\n", part, version.substr(begin, end - begin));
      begin = end + 1;
    }
    write_file_atomically(headers / "version.h", text);
    return folder_ / name;
  }

  static void expect_refusal(const LibTorchSearch& search, ErrorCode code,
                             const std::vector<std::string>& parts) {
    const std::string message = message_of(code, [&] { find_libtorch(search); });
    for (const std::string& part : parts) EXPECT_THAT(message, testing::HasSubstr(part));
  }

  const std::string right_{libtorch_of_build()};
  fs::path folder_;
};

TEST_F(LibTorchPlace, ReadsTheVersionFromTheHeaders) {
  EXPECT_EQ(libtorch_version(make("some", "2.31.4")), "2.31.4");
  EXPECT_EQ(libtorch_version(folder_ / "none"), std::nullopt);
}

TEST_F(LibTorchPlace, IsTorchDirAloneIfThatIsSet) {
  LibTorchSearch search{.torch_dir = make("mine", right_), .build = make("build", right_)};
  EXPECT_EQ(find_libtorch(search), folder_ / "mine");
  search.torch_dir = folder_ / "empty";
  expect_refusal(search, ErrorCode::not_found, {"TORCH_DIR is", "no LibTorch"});
  search.torch_dir = make("other", "2.31.4");
  expect_refusal(search, ErrorCode::unsupported,
                 {"built with LibTorch " + right_, "other is LibTorch 2.31.4"});
}

TEST_F(LibTorchPlace, IsTheEnvironmentsForAWheel) {
  const LibTorchSearch search{.wheel = make("wheel", right_), .build = make("build", right_)};
  EXPECT_EQ(find_libtorch(search), folder_ / "wheel");
  const LibTorchSearch beside_another{.wheel = make("wheel2", "2.31.4"),
                                      .build = make("build", right_)};
  expect_refusal(beside_another, ErrorCode::unsupported,
                 {"built with LibTorch " + right_, "wheel2 is LibTorch 2.31.4",
                  "pip install torch==" + right_});
}

TEST_F(LibTorchPlace, IsAnotherPlaceIfTheBuildsIsGone) {
  const LibTorchSearch search{.build = folder_ / "gone",
                              .others = {make("old", "2.31.4"), make("new", right_)}};
  EXPECT_EQ(find_libtorch(search), folder_ / "new");
  const LibTorchSearch old{.build = folder_ / "gone", .others = {make("old", "2.31.4")}};
  expect_refusal(old, ErrorCode::unsupported, {"old is LibTorch 2.31.4"});
  const LibTorchSearch none{.build = folder_ / "gone", .others = {folder_ / "also"}};
  expect_refusal(none, ErrorCode::not_found, {"gone", "also", "TORCH_DIR"});
}

}  // namespace
}  // namespace trireme::libtorch_place_test
