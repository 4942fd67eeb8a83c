// The layout of parameters, optimizer state and gradients in the memory that the ranks of a
// host share. Pure.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace trireme::shared {

inline constexpr size_t kCacheLine = 64;  // Bytes.

struct Entry {
  int64_t elements = 0;
  size_t element_bytes = 4;
  bool trainable = true;
  int state_tensors = 0;
  size_t bytes() const { return static_cast<size_t>(elements) * element_bytes; }
};

// A run of one parameter's elements.
struct Piece {
  int parameter = 0;
  int64_t from = 0, to = 0;
};

struct Layout {
  // By parameter: its offset in the model's memory, a multiple of 64.
  std::vector<size_t> parameters;
  // By parameter: the offsets of its state tensors in the model's memory, multiples of 64.
  std::vector<std::vector<size_t>> states;
  size_t model_bytes = 0;
  // By trainable parameter: its offset in one rank's gradient memory, with 64 free
  // bytes before it.
  std::vector<size_t> gradients;
  size_t gradient_bytes = 0;  // The gradient memory of one rank.
  // By rank: its part of all trainable elements. Parts are about equal in bytes and are cut
  // at cache lines.
  std::vector<std::vector<Piece>> shards;
};

Layout lay_out(const std::vector<Entry>& entries, int ranks);

}  // namespace trireme::shared
