#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/parallel/bucket_progress.h>

namespace trireme {

BucketProgress::BucketProgress(const plan::BucketPlan& plan,
                               const std::vector<NamedTensor>& parameters)
    : plan_(plan), parameters_(parameters), bucket_of_(parameters.size(), 0) {
  for (size_t bucket = 0; bucket < plan.buckets.size(); ++bucket)
    for (const int parameter : plan.buckets[bucket].params)
      bucket_of_[static_cast<size_t>(parameter)] = bucket;
  next_step();
}

void BucketProgress::ready(int parameter) {
  const auto i = static_cast<size_t>(parameter);
  if (is_ready_[i])
    throw Error(
        ErrorCode::unsupported, "parallel",
        fmt::format(
            "parameter '{}' got a second gradient in one backward, after the first one was sent",
            parameters_[i].name),
        "separate calls of backward() and step(), which send nothing before step()");
  is_ready_[i] = true;
  order_.push_back(parameter);
  --missing_[bucket_of_[i]];
}

void BucketProgress::next_step() {
  order_.clear();
  is_ready_.assign(parameters_.size(), false);
  missing_.clear();
  for (const auto& bucket : plan_.buckets)
    missing_.push_back(static_cast<int>(bucket.params.size()));
}

}  // namespace trireme
