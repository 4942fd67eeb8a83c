// Decides which gradients travel together. Pure: the same inputs give the same plan on every rank.
#pragma once
#include <trireme/base/json.h>
#include <trireme/plan/tensor_spec.h>
#include <span>
#include <string>
#include <vector>

namespace trireme::plan {

struct BucketOptions {
  // A larger tensor gets a bucket of its own. Small enough that most of backward is still to come
  // when the last gradient of one is there.
  int64_t capacity_bytes = 5 << 20;
  int64_t first_bytes = 1 << 20;  // Small first bucket: communication starts early in backward.
};

struct Bucket {
  DType dtype = DType::float32;
  std::vector<int> params;  // Indices into the specs given, in the order gradients become ready.
  std::vector<int64_t> offsets;  // First element of each of `params` in the bucket.
  int64_t elements = 0;
};

struct BucketPlan {
  std::vector<Bucket> buckets;
  int64_t bytes() const;
  std::string describe() const;  // One line a bucket, for logs and `trireme plan`.
  Json to_json() const;
};

// Groups trainable parameters by dtype, in the order in which backward finishes their gradients:
// `ready_order` as far as it goes (each index at most once), then last declared first. Untrainable
// ones are left out. Any thread; never communicates. Throws Error(invalid_argument) naming the
// option if a size is not positive, or the parameter if the order names one twice.
BucketPlan plan_buckets(std::span<const TensorSpec> params, const BucketOptions& options,
                        std::span<const int> ready_order = {});

// Throws Error(internal) naming the parameter that is missing, doubled, overlapping, or of another
// dtype than its bucket.
void check(const BucketPlan& plan, std::span<const TensorSpec> params);

}  // namespace trireme::plan
