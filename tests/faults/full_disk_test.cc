#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <trireme/checkpoint/folder.h>
#include <trireme/faults/full_disk.h>

#include "../base/expect_error.h"

namespace trireme::full_disk_test {
namespace {

TEST(FullDisk, TheNextCheckpointFailsAndTheOneAfterItIsWritten) {
  std::string pattern = (std::filesystem::temp_directory_path() / "trireme-full-XXXXXX").string();
  const std::filesystem::path path = ::mkdtemp(pattern.data());
  FullDisk disk;
  {
    checkpoint::Folder folder(path, {}, disk);
    const auto save = [&](int64_t step) {
      checkpoint::Manifest manifest;
      manifest.step = step;
      folder.save(manifest, std::vector<checkpoint::TensorView>(), {});
    };
    save(1);
    disk.fill();
    EXPECT_THAT(message_of(ErrorCode::io, [&] { save(2); }),
                ::testing::HasSubstr("No space left on device"));
    EXPECT_EQ(folder.newest()->manifest.step, 1) << "the older one is as it was";
    save(3);
    EXPECT_EQ(folder.newest()->manifest.step, 3);
  }
  std::filesystem::remove_all(path);
}

}  // namespace
}  // namespace trireme::full_disk_test
