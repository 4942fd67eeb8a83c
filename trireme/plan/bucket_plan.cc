#include <trireme/plan/bucket_plan.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/config/row.h>
#include <algorithm>
#include <map>
#include <utility>

namespace trireme::plan {
namespace {

void require_positive(std::string_view option, int64_t bytes) {
  if (bytes > 0) return;
  throw Error(ErrorCode::invalid_argument, "plan",
              fmt::format("{} is {}, and must be positive", option, bytes), "a size such as 25MB");
}

// Returns `ready_order`, followed by the other parameters, last declared first.
std::vector<int> whole_order(size_t params, std::span<const int> ready_order) {
  std::vector<int> order;
  std::vector<bool> known(params, false);
  const auto add = [&](int param) {
    known[static_cast<size_t>(param)] = true;
    order.push_back(param);
  };
  for (const int param : ready_order) {
    if (param < 0 || param >= static_cast<int>(params) || known[static_cast<size_t>(param)])
      throw Error(
          ErrorCode::invalid_argument, "plan",
          fmt::format("the ready order names parameter {} of {}, which is unknown or listed twice",
                      param, params));
    add(param);
  }
  for (int param = static_cast<int>(params) - 1; param >= 0; --param)
    if (!known[static_cast<size_t>(param)]) add(param);
  return order;
}

// Writes runs of neighbours, since the plan of a model mostly consists of them: "7..4, 2".
std::string runs_of(const std::vector<int>& numbers) {
  std::string text;
  for (size_t first = 0; first < numbers.size();) {
    size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] - 1) ++last;
    if (!text.empty()) text += ", ";
    text += first == last ? fmt::format("{}", numbers[first])
                          : fmt::format("{}..{}", numbers[first], numbers[last]);
    first = last + 1;
  }
  return text;
}

}  // namespace

config::Rows rows_of(const BucketOptions*) {
  using O = BucketOptions;
  return config::all_of<O>(
      {config::row(&O::capacity_bytes, {.name = "strategy.bucket_bytes",
                                        .meaning = "Gradients travel in buckets of this size.",
                                        .range = config::at_least(1),
                                        .kind = config::Kind::bytes}),
       config::row(
           &O::first_bytes,
           {.name = "strategy.first_bucket_bytes",
            .meaning = "Size of the first bucket. It is small so that sending starts early.",
            .range = config::at_least(1),
            .kind = config::Kind::bytes})});
}

BucketPlan plan_buckets(std::span<const TensorSpec> params, const BucketOptions& options,
                        std::span<const int> ready_order) {
  require_positive("capacity_bytes", options.capacity_bytes);
  require_positive("first_bytes", options.first_bytes);
  struct Open {
    Bucket bucket;
    int64_t capacity_bytes = 0;
  };
  std::map<DType, Open> open;
  BucketPlan plan;
  bool first_is_open = false;
  const std::vector<int> order = whole_order(params.size(), ready_order);
  for (const int param : order) {
    const TensorSpec& spec = params[static_cast<size_t>(param)];
    if (!spec.trainable) continue;
    auto& [bucket, capacity_bytes] = open[spec.dtype];
    const int64_t bytes_so_far = bucket.elements * bytes_of(spec.dtype);
    if (!bucket.params.empty() && bytes_so_far + spec.bytes() > capacity_bytes) {
      plan.buckets.push_back(std::exchange(bucket, {}));
    }
    if (bucket.params.empty()) {
      bucket.dtype = spec.dtype;
      capacity_bytes = first_is_open ? options.capacity_bytes
                                     : std::min(options.first_bytes, options.capacity_bytes);
      first_is_open = true;
    }
    bucket.params.push_back(param);
    bucket.offsets.push_back(bucket.elements);
    bucket.elements += spec.elements();
  }
  for (auto& [dtype, last] : open) plan.buckets.push_back(std::move(last.bucket));
  // A bucket is ready when its last gradient is.
  std::vector<int> place(params.size());
  for (size_t i = 0; i < order.size(); ++i)
    place[static_cast<size_t>(order[i])] = static_cast<int>(i);
  std::sort(plan.buckets.begin(), plan.buckets.end(), [&](const Bucket& a, const Bucket& b) {
    return place[static_cast<size_t>(a.params.back())] <
           place[static_cast<size_t>(b.params.back())];
  });
  return plan;
}

int64_t BucketPlan::bytes() const {
  int64_t sum = 0;
  for (const Bucket& bucket : buckets) sum += bucket.elements * bytes_of(bucket.dtype);
  return sum;
}

std::string BucketPlan::describe() const {
  std::string text = fmt::format("{} gradient bucket{}, {}, first ready first\n", buckets.size(),
                                 buckets.size() == 1 ? "" : "s", format_bytes(bytes()));
  if (buckets.empty()) return text;
  text += fmt::format("{:>6}  {:<8}  {:>10}  {:>12}  parameters\n", "bucket", "dtype", "bytes",
                      "elements");
  for (size_t i = 0; i < buckets.size(); ++i) {
    const Bucket& bucket = buckets[i];
    text += fmt::format("{:>6}  {:<8}  {:>10}  {:>12}  {}\n", i, to_string(bucket.dtype),
                        format_bytes(bucket.elements * bytes_of(bucket.dtype)), bucket.elements,
                        runs_of(bucket.params));
  }
  return text;
}

Json BucketPlan::to_json() const {
  Json json = {{"bytes", bytes()}, {"buckets", Json::array()}};
  for (const Bucket& bucket : buckets) {
    json["buckets"].push_back({{"dtype", to_string(bucket.dtype)},
                               {"elements", bucket.elements},
                               {"params", bucket.params},
                               {"offsets", bucket.offsets}});
  }
  return json;
}

}  // namespace trireme::plan
