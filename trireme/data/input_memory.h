// The memory that the input of a host may take, and its division. Pure, but for the amount that is
// free. No torch.
#pragma once
#include <cstdint>

namespace trireme::data {

// The bytes for a host: `asked`, or for -1 a quarter of the memory that is free now.
int64_t input_memory(int64_t asked);
// The part of it for caches; batches that are ready have the rest.
int64_t memory_of_caches(int64_t input);
// The part for batches beside caches of so many bytes: at least a quarter, because somebody may
// have given caches more than their part.
int64_t memory_of_batches(int64_t input, int64_t caches);

}  // namespace trireme::data
