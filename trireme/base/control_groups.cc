#include <trireme/base/control_groups.h>
#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>

namespace trireme {
namespace {

namespace fs = std::filesystem;

// A file without a number, such as one that holds "max", sets no limit.
double group_number(const fs::path& path, double otherwise) {
  std::ifstream file(path);
  double number = 0;
  return file >> number ? number : otherwise;
}

// The value behind `name` in a file of lines "NAME VALUE".
double group_statistic(const fs::path& path, std::string_view name) {
  std::ifstream file(path);
  double value = 0;
  for (std::string word; file >> word >> value;)
    if (word == name) return value;
  return 0;
}

struct NamesOfVersion {
  const char *limit, *used, *droppable;
};
constexpr NamesOfVersion kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes",
                                   "total_inactive_file"};
constexpr NamesOfVersion kVersion2{"memory.max", "memory.current", "inactive_file"};

// Version 1 writes "no limit" as a number near 2^63.
constexpr double kLimitless = 4e18;

void limit_memory(const fs::path& group, const NamesOfVersion& names, ControlGroupRoom& room) {
  const double limit = group_number(group / names.limit, -1),
               used = group_number(group / names.used, -1);
  if (limit < 0 || limit > kLimitless || used < 0) return;
  const double held = used - group_statistic(group / "memory.stat", names.droppable);
  const double left = std::clamp(limit - std::max(0.0, held), 0.0, kLimitless);
  room.memory = std::min(room.memory, static_cast<int64_t>(left));
}

void limit_cores(double quota, double period, ControlGroupRoom& room) {
  if (quota <= 0 || period <= 0) return;
  room.cores = room.cores > 0 ? std::min(room.cores, quota / period) : quota / period;
}

void limit_cores_by_version_1(const fs::path& group, ControlGroupRoom& room) {
  limit_cores(group_number(group / "cpu.cfs_quota_us", -1),
              group_number(group / "cpu.cfs_period_us", -1), room);
}

void limit_cores_by_version_2(const fs::path& group, ControlGroupRoom& room) {
  std::ifstream file(group / "cpu.max");
  double quota = 0, period = 0;
  if (file >> quota >> period) limit_cores(quota, period, room);
}

// Calls `visit` for the folder of this group and those of all groups above it.
template <typename Visit>
void for_each_group_above(const fs::path& top, std::string group, Visit visit) {
  for (;; group.resize(group.find_last_of('/'))) {
    visit(fs::path(top.string() + group));
    if (group.find('/') == std::string::npos) return;
  }
}

bool names_controller(std::string_view list, std::string_view name) {
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    if (list.substr(at, end - at) == name) return true;
    at = end + 1;
  }
  return false;
}

}  // namespace

ControlGroupRoom room_in_control_groups(const fs::path& root) {
  ControlGroupRoom room;
  std::ifstream self(root / "proc/self/cgroup");
  // A line is "NUMBER:CONTROLLERS:GROUP"; that of version 2 has no controllers.
  for (std::string line; std::getline(self, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    const fs::path top = root / "sys/fs/cgroup";
    if (controllers.empty()) {
      for_each_group_above(top, group, [&](const fs::path& folder) {
        limit_memory(folder, kVersion2, room);
        limit_cores_by_version_2(folder, room);
      });
    } else if (names_controller(controllers, "memory")) {
      for_each_group_above(top / controllers, group,
                           [&](const fs::path& folder) { limit_memory(folder, kVersion1, room); });
    } else if (names_controller(controllers, "cpu")) {
      for_each_group_above(top / controllers, group, [&](const fs::path& folder) {
        limit_cores_by_version_1(folder, room);
      });
    }
  }
  return room;
}

}  // namespace trireme
