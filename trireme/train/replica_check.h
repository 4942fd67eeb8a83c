// Finds silent corruption: compares replicas that should be bit-identical by
// hashes of their parameters.
#pragma once
#include <trireme/comm/group.h>
#include <trireme/parallel/module_state.h>
#include <string>
#include <vector>

namespace trireme {

// COLLECTIVE. Returns the same answer on every rank: empty if the tensors of all replicas are
// bit-identical. Otherwise the answer is a sentence that names the first tensor that differs and
// the ranks that differ from the majority. With two ranks, or without a majority, it names the
// ranks that differ from each other. Hashes are XXH3 of 128 bits: each rank sends 16 bytes, and if
// they differ, 16 bytes for each tensor.
std::string differing_replicas(const std::vector<NamedTensor>& tensors, Group& group);

// Flips one bit of one element of a floating-point tensor; `seed` selects it. This bypasses
// autograd and version counters, as broken memory or a broken network would: it is a fault
// for tests. A finite element stays finite. Returns the tensor's name, or an empty text if
// there is no such tensor.
std::string flip_a_bit(const std::vector<NamedTensor>& tensors, uint64_t seed);

}  // namespace trireme
