// Decides how the slices of a state move from the ranks that have them to the ranks that want
// them, after the ranks of a job have changed. Pure.
#pragma once
#include <trireme/plan/tensor_slice.h>
#include <cstddef>
#include <span>
#include <vector>

namespace trireme::plan {

struct PlacedSlice {
  int rank = 0;
  TensorSlice slice;
};

// A box that goes from held[from] to wanted[to].
struct SliceMove {
  size_t from = 0, to = 0;  // Indices.
  TensorSlice box;
};

enum class Prefer {
  own,    // A rank keeps what it has itself, and takes the rest from the first one that has it.
  first,  // The first one that has it counts, as for running statistics that differ.
};

// In the order of `wanted`: each of its elements moves once. Every rank computes the same moves,
// and executes those that it takes part in, in this order. Throws Error(corrupt) for elements that
// no rank has, and Error(invalid_argument) if the held tensor has another shape. Both name the
// slice.
std::vector<SliceMove> plan_moves(std::span<const PlacedSlice> wanted,
                                  std::span<const PlacedSlice> held, Prefer prefer);

}  // namespace trireme::plan
