// Times that code takes, in seconds.
#pragma once
#include <chrono>

namespace trireme {

inline double seconds_since(std::chrono::steady_clock::time_point started) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
}

}  // namespace trireme
