// The size of gradients of which only the largest values travel (topk). The functions are pure.
#pragma once
#include <trireme/plan/compression_plan.h>
#include <cstdint>

namespace trireme::plan {

// The number of values of a bucket that each rank sends.
int64_t kept_values(int64_t elements, double ratio);

// Plans the messages of a bucket.
void plan_topk(const Compression& compression, const CompressedBucketFacts& bucket,
               OperationPlanner& operations);

}  // namespace trireme::plan
