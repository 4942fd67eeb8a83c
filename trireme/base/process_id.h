// The system's facts of a process, and a name that tells a process from all others, also from a
// later one that was given the same number.
#pragma once
#include <sys/types.h>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

// The numbered fields of /proc/PID/stat, see proc(5): its field n stands at index n, as text.
// Indices 0 to 2 are empty. Empty if there is no such process.
std::vector<std::string> process_stat(pid_t pid);

struct ProcessId {
  pid_t pid = 0;
  uint64_t started = 0;  // The start, in ticks since boot. 0: there was no such process.
  // The boot of a machine, and a container on it: the pid means something only there.
  std::string place;

  static ProcessId of(pid_t pid);
  static ProcessId of_this_process();
  // Whether the process runs in this process's place. Only then can its life be checked.
  bool is_here() const;
  // False for a process that is elsewhere, and for one that ended and waits to be reaped.
  bool lives() const;
  bool operator==(const ProcessId&) const = default;
};

}  // namespace trireme
