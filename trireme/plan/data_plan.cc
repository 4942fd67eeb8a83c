#include <trireme/plan/data_plan.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/plan/keyed_order.h>
#include <algorithm>
#include <cmath>
#include <numeric>

namespace trireme::plan {
namespace {

// Scales a random 64-bit number to 0..bound-1 by multiply-shift, without a division and without a
// loop of unknown length.
int64_t scaled(uint64_t random, int64_t bound) {
  return static_cast<int64_t>(
      (static_cast<unsigned __int128>(random) * static_cast<uint64_t>(bound)) >> 64);
}

}  // namespace

DataPlan::DataPlan(DataPlanOptions options) : options_(options) {
  if (options_.samples < 0) {
    throw Error(ErrorCode::invalid_argument, "plan",
                fmt::format("samples is {}, and cannot be negative", options_.samples));
  }
  if (options_.batch < 1) {
    throw Error(ErrorCode::invalid_argument, "plan",
                fmt::format("batch is {}, and must be at least 1", options_.batch), "batch: 32");
  }
  if (options_.virtual_shards < 0) {
    throw Error(
        ErrorCode::invalid_argument, "plan",
        fmt::format("virtual_shards is {}, and cannot be negative", options_.virtual_shards),
        "0 for none");
  }
  if (options_.drop_last && options_.batch > options_.samples) {
    throw Error(
        ErrorCode::invalid_argument, "plan",
        fmt::format(
            "batch is {}, more than the {} samples, and drop_last leaves nothing to train on",
            options_.batch, options_.samples),
        "a smaller batch, or drop_last: false");
  }
}

int64_t DataPlan::batches_per_epoch() const {
  const int64_t full = options_.samples / options_.batch;
  const bool has_rest = options_.samples % options_.batch != 0;
  return full + (has_rest && !options_.drop_last ? 1 : 0);
}

int64_t DataPlan::size_at(DataPosition position) const {
  const auto [epoch, consumed] = position;
  if (epoch < 0 || consumed < 0 || consumed > options_.samples) {
    throw Error(
        ErrorCode::invalid_argument, "plan",
        fmt::format("position (epoch {}, {} samples consumed) is outside an epoch of {} samples",
                    epoch, consumed, options_.samples),
        "the data set that the position was saved with");
  }
  const int64_t size = std::min(options_.batch, options_.samples - consumed);
  return options_.drop_last && size < options_.batch ? 0 : size;
}

std::vector<int64_t> DataPlan::global_batch(DataPosition position) const {
  std::vector<int64_t> batch(static_cast<size_t>(size_at(position)));
  if (batch.empty()) return batch;
  const auto [epoch, consumed] = position;
  if (has_table()) {
    const auto first = table_of(epoch).begin() + consumed;
    std::copy(first, first + std::ssize(batch), batch.begin());
  } else if (options_.shuffle) {
    const KeyedOrder order(options_.samples, mix64(options_.seed, static_cast<uint64_t>(epoch)));
    for (size_t i = 0; i < batch.size(); ++i)
      batch[i] = order.at(consumed + static_cast<int64_t>(i));
  } else {
    std::iota(batch.begin(), batch.end(), consumed);
  }
  return batch;
}

DataPosition DataPlan::next(DataPosition position) const {
  const DataPosition after{position.epoch, position.consumed + size_at(position)};
  const bool epoch_is_over = size_at(after) == 0;
  return epoch_is_over ? DataPosition{position.epoch + 1, 0} : after;
}

std::pair<int64_t, int64_t> DataPlan::share(int64_t size, int rank, int world_size) {
  if (size < 0 || world_size < 1 || rank < 0 || rank >= world_size) {
    throw Error(ErrorCode::invalid_argument, "plan",
                fmt::format("no share of {} samples for rank {} of {}", size, rank, world_size));
  }
  const int64_t each = size / world_size;
  const int64_t longer = size % world_size;  // The first ranks take one more sample.
  const int64_t first = rank * each + std::min<int64_t>(rank, longer);
  return {first, first + each + (rank < longer ? 1 : 0)};
}

std::pair<int64_t, int64_t> DataPlan::share_of(int64_t size, int rank, int world_size) const {
  const int shards = options_.virtual_shards;
  if (shards == 0) return share(size, rank, world_size);
  const auto [first, last] = share(shards, rank, world_size);
  const auto start_of = [&](int64_t shard) {
    return shard < shards ? share(size, static_cast<int>(shard), shards).first : size;
  };
  return {start_of(first), start_of(last)};
}

const std::vector<int64_t>& DataPlan::table_of(int64_t epoch) const {
  if (cached_epoch_ == epoch) return cached_order_;
  cached_order_ = shuffled(options_.samples, mix64(options_.seed, static_cast<uint64_t>(epoch)));
  cached_epoch_ = epoch;
  return cached_order_;
}

std::vector<int64_t> shuffled(int64_t n, uint64_t seed) {
  if (n < 0)
    throw Error(ErrorCode::invalid_argument, "plan", fmt::format("cannot shuffle {} samples", n));
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  for (int64_t i = n - 1; i >= 1; --i) {
    const int64_t j = scaled(mix64(seed, static_cast<uint64_t>(i)), i + 1);
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(j)]);
  }
  return order;
}

Split plan_split(int64_t samples, double test_fraction, uint64_t seed) {
  if (!(test_fraction >= 0 && test_fraction <= 1)) {
    throw Error(ErrorCode::invalid_argument, "plan",
                fmt::format("test_fraction is {}, and must be between 0 and 1", test_fraction),
                "0.2");
  }
  const std::vector<int64_t> order = shuffled(samples, seed);
  const auto cut = order.begin() + std::llround(static_cast<double>(samples) * test_fraction);
  Split split{.train = {cut, order.end()}, .test = {order.begin(), cut}};
  std::sort(split.train.begin(), split.train.end());
  std::sort(split.test.begin(), split.test.end());
  return split;
}

}  // namespace trireme::plan
