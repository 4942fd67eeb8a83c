// The memory that the input of a host may take, and its division. Pure, but for the amount that is
// free. No torch.
#pragma once
#include <cstdint>

namespace trireme::data {

// The bytes for a host: `asked`, or for -1 a quarter of the memory that is free now.
int64_t input_memory(int64_t asked);
// The part of it for caches; batches that are ready have the rest.
int64_t memory_of_caches(int64_t input);
// The part for batches beside caches of so many bytes. If caches were given more than their part,
// a quarter of what is usual is left to batches; but what was asked for is never exceeded.
int64_t memory_of_batches(int64_t asked, int64_t caches);
// The part of the batches' memory that goes to unpacked files and row groups, if there are any.
inline int64_t part_of_blocks(int64_t batches) { return batches / 2; }
int64_t memory_of_kept_blocks(int64_t asked, int64_t caches);
// The most bytes of one of these, and of one record. It is pure: half of what was asked for, but
// at least 64 MiB; -1: 1 GiB.
int64_t memory_of_block(int64_t asked);
// The most bytes of one decoded image. It is pure: `asked` decides, and not the memory that is
// free. A quarter of what was asked for, but at least 64 MiB and at most 1 GiB; -1: 1 GiB.
inline constexpr int64_t kMostOfImage = int64_t{1} << 30;
int64_t memory_of_image(int64_t asked);

}  // namespace trireme::data
