// The time of day as a number.
#pragma once
#include <chrono>

namespace trireme {

// The seconds since the start of 1970 (UTC).
inline double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace trireme
