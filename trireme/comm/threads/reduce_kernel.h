// The sum (or maximum, or minimum) of one range over the buffers of several ranks, in the given
// order; no torch.
#pragma once
#include <trireme/plan/tensor_spec.h>
#include <cstdint>
#include <span>

namespace trireme::comm {

enum class Fold { sum, max, min };

// target[first..last) = fold of sources[k][first..last), in ascending k. `target` may be one of
// `sources`. float16 and bfloat16 are accumulated in float32 and rounded once. NaN wins in max and
// min, as in torch.
void fold_range(plan::DType dtype, Fold fold, void* target, std::span<const void* const> sources,
                int64_t first, int64_t last);

}  // namespace trireme::comm
