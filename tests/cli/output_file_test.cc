#include <gmock/gmock.h>
#include <trireme/cli/output_file.h>
#include <filesystem>
#include <fstream>

#include "../base/expect_error.h"

namespace trireme::cli::output_file_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

class OutputFile : public testing::Test {
 protected:
  OutputFile() { fs::create_directories(folder_ / "reports"); }
  ~OutputFile() override { fs::remove_all(folder_); }

  static std::string refused(ErrorCode code, const fs::path& file,
                             const std::vector<fs::path>& made = {}) {
    const auto no = [](const std::string&) { return false; };
    return message_of(code, [&] { require_place_of("--report", file, made, no); });
  }

  const fs::path folder_ = fs::path(testing::TempDir()) / "trireme-output-file-test";
};

TEST_F(OutputFile, MayLieInAFolderThatIsThere) {
  EXPECT_NO_THROW(require_place_of("--report", folder_ / "reports" / "r.json"));
  EXPECT_NO_THROW(require_place_of("--report", "r.json"));
  EXPECT_NO_THROW(require_place_of("--report", ""));
}

TEST_F(OutputFile, IsRefusedInAFolderThatIsMissing) {
  const fs::path missing = folder_ / "pigeon" / "deep";
  EXPECT_EQ(refused(ErrorCode::not_found, missing / "r.json"),
            "[cli] --report " + (missing / "r.json").string() + ": there is no folder " +
                missing.string() + "; try: mkdir -p " + missing.string() +
                ", if that folder is meant");
  EXPECT_FALSE(fs::exists(missing));
}

TEST_F(OutputFile, MayLieInAFolderThatAPersonWants) {
  static std::string asked;
  const fs::path missing = folder_ / "pigeon" / "deep";
  require_place_of("--report", missing / "r.json", {}, [](const std::string& question) {
    asked = question;
    return true;
  });
  EXPECT_EQ(asked, "--report " + (missing / "r.json").string() + ": there is no folder " +
                       missing.string() + ". Shall it be made?");
  EXPECT_TRUE(fs::is_directory(missing));
}

TEST_F(OutputFile, NamesAFolderWithASimilarName) {
  EXPECT_THAT(refused(ErrorCode::not_found, folder_ / "reprots" / "r.json"),
              HasSubstr("; try: --report " + (folder_ / "reports" / "r.json").string() +
                        ", or mkdir -p "));
}

TEST_F(OutputFile, MayLieInAFolderThatTheRunMakes) {
  const fs::path run = folder_ / "runs" / "first";
  EXPECT_NO_THROW(require_place_of("--report", run / "r.json", {run}));
  EXPECT_NO_THROW(require_place_of("--report", folder_ / "runs" / "r.json", {run}));
  EXPECT_NO_THROW(require_place_of("--report", folder_ / "x/../runs/first/r.json", {run / ""}));
  refused(ErrorCode::not_found, run / "deeper" / "r.json", {run});
  refused(ErrorCode::not_found, folder_ / "runs" / "fir" / "r.json", {run});
}

TEST_F(OutputFile, IsRefusedIfItIsOrNeedsSomethingElse) {
  EXPECT_THAT(refused(ErrorCode::invalid_argument, folder_ / "reports"),
              AllOf(HasSubstr("is a folder"), EndsWith("reports/NAME")));
  EXPECT_THAT(refused(ErrorCode::invalid_argument, folder_ / "new" / ""),
              HasSubstr("is a folder"));
  std::ofstream(folder_ / "file") << "x";
  EXPECT_THAT(refused(ErrorCode::invalid_argument, folder_ / "file" / "r.json"),
              HasSubstr("file is not a folder"));
}

}  // namespace
}  // namespace trireme::cli::output_file_test
