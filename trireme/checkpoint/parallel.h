// A loop that runs on several threads.
#pragma once
#include <algorithm>
#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

namespace trireme::checkpoint {

// Calls body(from, to) for equal parts of [0, count), and runs the first part on the calling
// thread. If several parts throw, rethrows the error of the lowest one.
template <typename Body>
void in_parallel(size_t count, int threads, Body body) {
  const size_t parts =
      std::clamp<size_t>(static_cast<size_t>(std::max(threads, 1)), 1, std::max<size_t>(count, 1));
  std::vector<std::exception_ptr> errors(parts);
  const auto run = [&](size_t part) {
    try {
      body(count * part / parts, count * (part + 1) / parts);
    } catch (...) {
      errors[part] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    for (size_t part = 1; part < parts; ++part) others.emplace_back(run, part);
    run(0);
  }
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace trireme::checkpoint
