// Makes a batch of samples.
#pragma once
#include <trireme/data/batch.h>
#include <cstdint>
#include <vector>

namespace trireme {

// Stacks samples along a new first dimension. `indices` are their numbers, for messages. Throws
// Error(invalid_argument) naming a sample whose shape, or whose names of tensors, differ from the
// others'. There is at least one sample.
Example stack_examples(const std::vector<Example>& examples, const std::vector<int64_t>& indices);

}  // namespace trireme
