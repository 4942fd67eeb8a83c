// The limits that the control groups of this process set, of version 1 and of version 2.
#pragma once
#include <cstdint>
#include <filesystem>
#include <limits>

namespace trireme {

struct ControlGroupRoom {
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
  // The bytes that this process may still take. Pages of files that the kernel can drop at once
  // count as free.
  int64_t memory = kNoLimit;
  // The processors that its processes may use together, such as 1.5; 0: no limit.
  double cores = 0;
};

// The smallest room of all groups above this process. A container may see its own group at the
// top. `root` stands for the root of the file system, for tests. Any thread; it reads a few files.
ControlGroupRoom room_in_control_groups(const std::filesystem::path& root = "/");

}  // namespace trireme
