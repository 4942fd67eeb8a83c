// Helpers for tests with child processes: looking at one, reading from one, each with a deadline.
#pragma once
#include <poll.h>
#include <trireme/base/deadline.h>
#include <unistd.h>
#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

namespace trireme::tests {

// A zombie that has not been reaped counts as gone.
inline bool is_alive(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return false;
  const size_t state = line.rfind(')') + 2;
  return state < line.size() && line[state] != 'Z' && line[state] != 'X';
}

// Waits until `holds` returns true. Returns false at the deadline.
inline bool becomes_true(const std::function<bool()>& holds,
                         Milliseconds within = Milliseconds(8000)) {
  for (const Deadline deadline = Deadline::after(within); !holds();) {
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(Milliseconds(2));
  }
  return true;
}

// Reads until `enough` is true of the whole text, the stream ends, or the deadline has passed.
inline std::string read_until(int fd, const std::function<bool(const std::string&)>& enough,
                              Milliseconds within = Milliseconds(8000)) {
  std::string text;
  const Deadline deadline = Deadline::after(within);
  while (!enough(text) && !deadline.expired()) {
    pollfd readable{fd, POLLIN, 0};
    if (::poll(&readable, 1, static_cast<int>(deadline.remaining().count())) <= 0) continue;
    char bytes[4096];
    const ssize_t got = ::read(fd, bytes, sizeof bytes);
    if (got <= 0) break;
    text.append(bytes, static_cast<size_t>(got));
  }
  return text;
}

inline std::string read_all(int fd) {
  return read_until(fd, [](const std::string&) { return false; });
}

}  // namespace trireme::tests
