// Tells a process from all others, also from a later one that was given the same number.
#pragma once
#include <sys/types.h>
#include <cstdint>
#include <string>

namespace trireme {

struct ProcessId {
  pid_t pid = 0;
  uint64_t started = 0;  // In ticks since boot; 0: there was no such process.
  std::string place;     // Where its number means something: a boot of a machine, and a container.

  static ProcessId of(pid_t pid);
  static ProcessId of_this_process();
  bool is_here() const;  // In this process's place: only there its life can be looked at.
  bool lives() const;    // Here. A process that has ended and that nobody has reaped does not live.
  bool operator==(const ProcessId&) const = default;
};

}  // namespace trireme
