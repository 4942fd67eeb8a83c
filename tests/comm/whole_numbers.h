// The numbers with which tests of collectives fill tensors.
#pragma once
#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

namespace trireme::tests {

// Small whole numbers: their sums are exact in every type and in any order. They are copied,
// because computing them takes longer than most collectives.
inline at::Tensor part_of(int rank, int64_t count, at::ScalarType type) {
  static std::mutex mutex;
  static std::map<std::pair<int, at::ScalarType>, at::Tensor> known;
  const std::lock_guard lock(mutex);
  const int first = rank * 5 % 13;
  at::Tensor& numbers = known[{first, type}];
  if (!numbers.defined() || numbers.numel() < count)
    numbers =
        ((at::arange(std::max<int64_t>(2 * count, 20'000), at::kLong) * 7 + first) % 13).to(type);
  return numbers.narrow(0, 0, count).clone();
}

}  // namespace trireme::tests
