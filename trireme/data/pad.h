// Samples of different lengths become one batch.
#pragma once
#include <trireme/data/batch.h>
#include <cstdint>
#include <vector>

namespace trireme {

struct PadOptions {
  int64_t multiple = 1;  // The length becomes a multiple of it.
  double value = 0;      // It is added to the data.
  // The target is as long as the data. Whole numbers get kNoTarget, and others zeros.
  bool pads_target = false;
};

// Stacks samples whose data differ in their first size: it becomes that of the longest one, or
// `longest` if that is more. The same happens to each tensor of Example::more that is as long as
// the data in all samples; it gets zeros. "lengths", int64 [samples], has the lengths from before.
// Throws Error(invalid_argument) naming two samples that differ in another way, or one whose data
// has no dimension. There is at least one sample.
Example pad_examples(const std::vector<Example>& examples, const std::vector<int64_t>& indices,
                     const PadOptions& options, int64_t longest);

}  // namespace trireme
