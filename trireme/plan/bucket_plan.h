// Decides which gradients travel together. The functions are pure: the same inputs give the same
// plan on every rank.
#pragma once
#include <trireme/base/json.h>
#include <trireme/config/rows.h>
#include <trireme/plan/tensor_spec.h>
#include <span>
#include <string>
#include <vector>

namespace trireme::plan {

struct BucketOptions {
  // The size of a full bucket; a larger tensor gets a bucket of its own. The default is small, so
  // that most of backward is still to come when the first full bucket is ready.
  int64_t capacity_bytes = 5 << 20;
  // The size of the first bucket. It is smaller, so that communication starts early in backward.
  int64_t first_bytes = 1 << 20;
};
config::Rows rows_of(const BucketOptions*);

struct Bucket {
  DType dtype = DType::float32;
  // Indices into the given specs, in the order in which the gradients become ready.
  std::vector<int> params;
  // The first element of each of `params` in the bucket.
  std::vector<int64_t> offsets;
  int64_t elements = 0;
};

struct BucketPlan {
  std::vector<Bucket> buckets;
  int64_t bytes() const;
  // One line per bucket, for logs and `trireme plan`.
  std::string describe() const;
  Json to_json() const;
};

// Groups trainable parameters by dtype, in the order in which backward finishes their gradients.
// The indices of `ready_order` come first (each at most once); the other parameters follow, last
// declared first. Untrainable parameters are left out. Any thread may call this; it never
// communicates. Throws Error(invalid_argument) naming the option if a size is not positive, or the
// parameter if the order names it twice or it does not exist.
BucketPlan plan_buckets(std::span<const TensorSpec> params, const BucketOptions& options,
                        std::span<const int> ready_order = {});

// Throws Error(internal) naming the parameter that is missing, appears twice, overlaps another
// one, is not trainable, or has another dtype than its bucket.
void check(const BucketPlan& plan, std::span<const TensorSpec> params);

}  // namespace trireme::plan
