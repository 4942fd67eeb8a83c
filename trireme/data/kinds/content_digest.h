// The digest of what a data file holds. It becomes a fact of the checkpoints.
#pragma once
#include <trireme/checkpoint/digest.h>
#include <span>

namespace trireme::data {

// `values` is a string or a vector of numbers.
template <typename Values>
void add_values(checkpoint::Digest& digest, const Values& values) {
  digest.update(std::as_bytes(std::span(values)));
}

}  // namespace trireme::data
