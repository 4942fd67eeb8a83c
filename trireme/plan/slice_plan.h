// Decides how slices of tensors move between two layouts, such as the one that wrote a checkpoint
// and the one that reads it. Pure: any layout loads any other by intersecting two lists.
#pragma once
#include <trireme/plan/tensor_slice.h>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trireme::plan {

// The box that two slices of one tensor have in common; empty if there is none.
std::optional<TensorSlice> intersect(const TensorSlice& a, const TensorSlice& b);

// Elements that lie side by side in both slices. Offsets count elements of the slice's memory.
struct SliceRun {
  int64_t source = 0, target = 0, elements = 0;
  bool operator==(const SliceRun&) const = default;
};
// The runs of `box` in the row-major memory of two slices that both contain it, in its order.
std::vector<SliceRun> runs_of(const TensorSlice& box, const TensorSlice& source,
                              const TensorSlice& target);

// A part of a wanted slice, and the stored slice that it is taken from.
struct SliceRead {
  size_t stored = 0;  // An index.
  TensorSlice box;
};
// For each wanted slice, the parts that make it up: each of its elements once, from the first
// stored slice that has it. Throws Error(corrupt) for elements that no stored slice has, and
// Error(invalid_argument) if the stored tensor has another shape. Both name the slice.
std::vector<std::vector<SliceRead>> plan_reads(std::span<const TensorSlice> wanted,
                                               std::span<const TensorSlice> stored);

// Whether slices are whole tensors cut into parts. Equal slices are replicas.
struct Cover {
  // For each slice the index of its first replica, which is its own if there is no earlier one.
  std::vector<size_t> first;
  // Names two shapes of one tensor, two slices that overlap, or a hole. Empty if all is well.
  std::string flaw;
};
// `holders` says of each slice where it lies, for the flaw. Empty slices do not count.
Cover check_cover(std::span<const TensorSlice> slices, std::span<const std::string> holders);

}  // namespace trireme::plan
