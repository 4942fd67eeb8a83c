#include <trireme/plan/data_plan.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <algorithm>
#include <cmath>
#include <utility>

namespace trireme::plan {
namespace {

DataPlanOptions checked(DataPlanOptions options) {
  if (options.samples < 0) {
    throw Error(ErrorCode::invalid_argument, "plan",
                fmt::format("samples is {}, and cannot be negative", options.samples));
  }
  if (options.batch < 1) {
    throw Error(ErrorCode::invalid_argument, "plan",
                fmt::format("batch is {}, and must be at least 1", options.batch), "batch: 32");
  }
  if (options.virtual_shards < 0) {
    throw Error(
        ErrorCode::invalid_argument, "plan",
        fmt::format("virtual_shards is {}, and cannot be negative", options.virtual_shards),
        "0 for none");
  }
  if (options.drop_last && options.batch > options.samples) {
    throw Error(
        ErrorCode::invalid_argument, "plan",
        fmt::format(
            "batch is {}, more than the {} samples, and drop_last leaves nothing to train on",
            options.batch, options.samples),
        "a smaller batch, or drop_last: false");
  }
  return options;
}

}  // namespace

DataPlan::DataPlan(DataPlanOptions options)
    : options_(checked(std::move(options))),
      order_(options_.samples, options_.seed, options_.shuffle) {}

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
  order_.fill(position.epoch, position.consumed, batch);
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

}  // namespace trireme::plan
