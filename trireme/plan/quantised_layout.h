// The division of gradients that are encoded in blocks of numbers. The functions are pure.
#pragma once
#include <trireme/plan/compression_plan.h>
#include <cstdint>

namespace trireme::plan {

// The division of a bucket that travels in blocks. Each rank owns a chunk of whole blocks, and at
// most `piece` elements of a chunk travel in one message.
struct QuantisedLayout {
  BlockFormat format;
  int64_t chunk = 0;  // The elements of each rank's chunk; zeros fill up the last chunks.
  int64_t piece = 0;
  int64_t pieces() const { return (chunk + piece - 1) / piece; }
  int64_t bytes_of(int64_t elements) const { return elements / format.block * format.block_bytes; }
};
QuantisedLayout lay_out_quantised(int64_t elements, int ranks, const BlockFormat& format);

// Plans the messages of a bucket.
void plan_quantised(const Compression& compression, const CompressedBucketFacts& bucket,
                    OperationPlanner& operations);

}  // namespace trireme::plan
