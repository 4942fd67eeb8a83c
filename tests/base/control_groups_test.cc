#include <trireme/base/control_groups.h>

#include <gtest/gtest.h>

#include <trireme/base/cores.h>
#include <unistd.h>
#include <filesystem>
#include <fstream>
#include <string>

namespace trireme::control_groups_test {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMega = 1 << 20;

// A root with the files that the kernel would have.
class ControlGroups : public testing::Test {
 protected:
  ~ControlGroups() override { fs::remove_all(root_); }
  void write(const std::string& name, const std::string& content) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << content;
  }
  void limit(const std::string& group, int64_t most, int64_t used, int64_t files = 0) const {
    const std::string folder = "sys/fs/cgroup/" + group;
    write(folder + "/memory.max", most < 0 ? "max\n" : std::to_string(most));
    write(folder + "/memory.current", std::to_string(used));
    write(folder + "/memory.stat", "anon 5\ninactive_file " + std::to_string(files) + "\n");
  }
  ControlGroupRoom room() const { return room_in_control_groups(root_); }

  const fs::path root_ =
      fs::temp_directory_path() / ("trireme-groups-" + std::to_string(getpid()));
};

TEST_F(ControlGroups, WithoutOnesThereIsNoLimit) {
  EXPECT_EQ(room().memory, ControlGroupRoom::kNoLimit);
  EXPECT_EQ(room().cores, 0);
  write("proc/self/cgroup", "0::/\nnonsense\n");
  EXPECT_EQ(room().memory, ControlGroupRoom::kNoLimit);
}

TEST_F(ControlGroups, TheSmallestRoomOnTheWayUpCounts) {
  write("proc/self/cgroup", "0::/pod/task\n");
  limit("pod/task", -1, 5);
  limit("pod", 900 * kMega, 400 * kMega);
  EXPECT_EQ(room().memory, 500 * kMega);
  limit("pod/task", 300 * kMega, 100 * kMega);
  EXPECT_EQ(room().memory, 200 * kMega);
  limit("pod/task", 300 * kMega, 310 * kMega);
  EXPECT_EQ(room().memory, 0);
}

// The pages of mapped data sets fill a group, and leave it whenever somebody needs the memory.
TEST_F(ControlGroups, PagesOfFilesThatCanBeDroppedAreFree) {
  write("proc/self/cgroup", "0::/\n");
  limit("", 1000 * kMega, 990 * kMega, 700 * kMega);
  EXPECT_EQ(room().memory, 710 * kMega);
}

TEST_F(ControlGroups, APartOfTheProcessorsIsRead) {
  write("proc/self/cgroup", "0::/pod/task\n");
  write("sys/fs/cgroup/pod/task/cpu.max", "max 100000\n");
  EXPECT_EQ(room().cores, 0);
  write("sys/fs/cgroup/pod/cpu.max", "150000 100000\n");
  EXPECT_EQ(room().cores, 1.5);
  write("sys/fs/cgroup/pod/task/cpu.max", "50000 100000\n");
  EXPECT_EQ(room().cores, 0.5);
}

TEST_F(ControlGroups, Version1IsRead) {
  write("proc/self/cgroup", "4:memory:/jobs/a\n2:cpu,cpuacct:/jobs\n1:name=systemd:/x\n0::/\n");
  const std::string memory = "sys/fs/cgroup/memory/jobs/a/";
  write(memory + "memory.limit_in_bytes", std::to_string(500 * kMega));
  write(memory + "memory.usage_in_bytes", std::to_string(450 * kMega));
  write(memory + "memory.stat", "cache 1\ntotal_inactive_file " + std::to_string(50 * kMega));
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "7");
  write("sys/fs/cgroup/cpu,cpuacct/jobs/cpu.cfs_quota_us", "300000");
  write("sys/fs/cgroup/cpu,cpuacct/jobs/cpu.cfs_period_us", "100000");
  EXPECT_EQ(room().memory, 100 * kMega);
  EXPECT_EQ(room().cores, 3);
  write("sys/fs/cgroup/cpu,cpuacct/jobs/cpu.cfs_quota_us", "-1");
  EXPECT_EQ(room().cores, 0);
}

// A container of version 1 sees the names of the host and the files of its own group at the top.
TEST_F(ControlGroups, TheGroupOfAContainerIsAtTheTop) {
  write("proc/self/cgroup", "4:memory:/docker/0123\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(100 * kMega));
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(40 * kMega));
  EXPECT_EQ(room().memory, 60 * kMega);
}

TEST(Cores, AreAtLeastOne) { EXPECT_GE(usable_cores(), 1); }

}  // namespace
}  // namespace trireme::control_groups_test
