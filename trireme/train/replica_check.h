// Silent corruption: replicas that should be bit-identical are compared by hashes of their
// parameters.
#pragma once
#include <trireme/comm/group.h>
#include <trireme/parallel/module_state.h>
#include <string>
#include <vector>

namespace trireme {

// COLLECTIVE; the same answer on every rank. Empty if all replicas' tensors are bit-identical; else
// a sentence that names the ranks that differ from the majority (with two ranks, or without a
// majority: which differ from each other) and the first tensor that does. Hashes are XXH3 of 128
// bits: 16 bytes a rank travel; where they differ, 16 a tensor.
std::string differing_replicas(const std::vector<NamedTensor>& tensors, Group& group);

// Flips one bit of one element of a tensor of floating-point numbers, drawn by `seed`, past
// autograd and version counters as a broken memory or network would: a fault for tests. The element
// stays finite if it was. Returns the tensor's name; empty if there is none.
std::string flip_a_bit(const std::vector<NamedTensor>& tensors, uint64_t seed);

}  // namespace trireme
