#include <trireme/plan/kept_values.h>
#include <trireme/plan/operation.h>
#include <algorithm>
#include <cmath>

namespace trireme::plan {

int64_t kept_values(int64_t elements, double ratio) {
  if (elements == 0) return 0;
  return std::clamp<int64_t>(std::llround(std::ceil(ratio * static_cast<double>(elements))), 1,
                             elements);
}

// Places and values travel as 32-bit words.
void plan_topk(const Compression&, const CompressedBucketFacts& bucket,
               OperationPlanner& operations) {
  const int64_t count = kept_values(bucket.elements, bucket.options.ratio);
  operations.all_gather(bucket.content, DType::int32, operations.ranks() * 2 * count);
}

}  // namespace trireme::plan
