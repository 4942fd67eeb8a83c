// Where parameters, optimizer state and gradients lie in the memory that the ranks of a host share.
// Pure.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace trireme::shared {

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
  std::vector<size_t>
      parameters;  // Offset of each parameter in the model's memory; multiples of 64.
  std::vector<std::vector<size_t>> states;  // Of each of its state tensors, likewise.
  size_t model_bytes = 0;
  std::vector<size_t> gradients;  // Offset of each trainable parameter in one rank's gradient
                                  // memory; 64 bytes in front of each are free.
  size_t gradient_bytes = 0;      // Of one rank.
  std::vector<std::vector<Piece>> shards;  // By rank: its part of all trainable elements, about
                                           // equal in bytes; cut at cache lines.
};

Layout lay_out(const std::vector<Entry>& entries, int ranks);

}  // namespace trireme::shared
