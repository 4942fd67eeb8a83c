// The tensors of a sample as bytes, and back: what a cache behind normalise or a map keeps.
//
// A head of words has the type, the sizes and the name of each tensor. The numbers follow it. A
// sample that a filter leaves out has no tensors.
#pragma once
#include <trireme/data/batch.h>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace trireme::data {

// Empty: they cannot be kept, such as tensors on a device.
std::vector<std::byte> bytes_of_tensors(const Example& example);
std::vector<std::byte> bytes_of_left_out();

struct KeptTensors {
  bool is_left_out = false;
  Example example;
};
// Nothing: these are no such bytes. With `as_views` the tensors are views of the bytes, and must
// not be changed.
std::optional<KeptTensors> tensors_in(std::span<const std::byte> bytes, bool as_views);

}  // namespace trireme::data
