#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/plan/bucketing.h>
#include <trireme/plan/keyed_order.h>
#include <algorithm>
#include <mutex>

namespace trireme::plan {

void check(const LengthBatches& options) {
  if (options.batch < 1 || options.window < 1 || options.window > INT64_MAX / options.batch)
    throw Error(ErrorCode::invalid_argument, "plan",
                fmt::format("batches of similar length: windows of {} batches of {} samples; both "
                            "must be at least 1",
                            options.window, options.batch),
                "window: 100, and the global batch");
}

std::vector<int64_t> batched_by_length(std::vector<int64_t> samples, const LengthBatches& options,
                                       uint64_t seed) {
  struct Item {
    int64_t length;
    size_t place;  // Equal lengths keep their order.
    bool operator<(const Item& other) const {
      return length != other.length ? length < other.length : place < other.place;
    }
  };
  std::vector<Item> items(samples.size());
  {
    // Replicas of one process share the function.
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    for (size_t i = 0; i < samples.size(); ++i) items[i] = {options.length(samples[i]), i};
  }
  std::sort(items.begin(), items.end());

  const auto batch = static_cast<size_t>(options.batch);
  const size_t full = samples.size() / batch, rest = samples.size() % batch;
  // The batch that is not full begins behind so many full ones.
  const size_t short_at = rest == 0 ? full : mix64(seed, samples.size()) % (full + 1);
  std::vector<int64_t> ordered;
  ordered.reserve(samples.size());
  const auto take = [&](size_t first, size_t count) {
    for (size_t i = first; i < first + count; ++i) ordered.push_back(samples[items[i].place]);
  };
  if (full > 0) {
    const KeyedOrder order(static_cast<int64_t>(full), seed);
    for (size_t place = 0; place < full; ++place) {
      const auto number = static_cast<size_t>(order.at(static_cast<int64_t>(place)));
      take(number * batch + (number < short_at ? 0 : rest), batch);
    }
  }
  take(short_at * batch, rest);
  return ordered;
}

}  // namespace trireme::plan
