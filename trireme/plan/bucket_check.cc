#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/plan/bucket_plan.h>
#include <algorithm>

namespace trireme::plan {
namespace {

[[noreturn]] void reject(const std::string& what) {
  throw Error(ErrorCode::internal, "plan", "bucket plan: " + what);
}

// Checks that the parameters lie beside each other in the bucket, and each inside it.
void check_layout(const Bucket& bucket, size_t number, std::span<const TensorSpec> params) {
  struct Piece {
    int64_t first, last;
    int param;
  };
  std::vector<Piece> pieces;
  for (size_t i = 0; i < bucket.params.size(); ++i) {
    const int64_t elements = params[static_cast<size_t>(bucket.params[i])].elements();
    if (elements > 0)
      pieces.push_back({bucket.offsets[i], bucket.offsets[i] + elements, bucket.params[i]});
  }
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return a.first < b.first; });
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto [first, last, param] = pieces[i];
    const std::string& name = params[static_cast<size_t>(param)].name;
    if (first < 0 || last > bucket.elements) {
      reject(fmt::format("parameter {} '{}' takes elements {} to {} of bucket {}, which has {}",
                         param, name, first, last, number, bucket.elements));
    }
    if (i > 0 && pieces[i - 1].last > first) {
      reject(fmt::format("parameter {} '{}' overlaps parameter {} in bucket {} at element {}",
                         param, name, pieces[i - 1].param, number, first));
    }
  }
}

}  // namespace

void check(const BucketPlan& plan, std::span<const TensorSpec> params) {
  std::vector<bool> taken(params.size(), false);
  for (size_t number = 0; number < plan.buckets.size(); ++number) {
    const Bucket& bucket = plan.buckets[number];
    if (bucket.offsets.size() != bucket.params.size()) {
      reject(fmt::format("bucket {} has {} offsets for {} parameters", number,
                         bucket.offsets.size(), bucket.params.size()));
    }
    for (const int param : bucket.params) {
      if (param < 0 || static_cast<size_t>(param) >= params.size())
        reject(fmt::format("bucket {} names parameter {} of {}", number, param, params.size()));
      const TensorSpec& spec = params[static_cast<size_t>(param)];
      if (taken[static_cast<size_t>(param)])
        reject(fmt::format("parameter {} '{}' is in two places, the second is bucket {}", param,
                           spec.name, number));
      if (!spec.trainable)
        reject(fmt::format("parameter {} '{}' in bucket {} is not trainable", param, spec.name,
                           number));
      if (spec.dtype != bucket.dtype) {
        reject(fmt::format("parameter {} '{}' is {} in bucket {} of {}", param, spec.name,
                           to_string(spec.dtype), number, to_string(bucket.dtype)));
      }
      taken[static_cast<size_t>(param)] = true;
    }
    check_layout(bucket, number, params);
  }
  for (size_t param = 0; param < params.size(); ++param) {
    if (params[param].trainable && !taken[param])
      reject(fmt::format("parameter {} '{}' is in no bucket", param, params[param].name));
  }
}

}  // namespace trireme::plan
