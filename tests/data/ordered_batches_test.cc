#include <trireme/data/ordered_batches.h>

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <set>
#include <thread>

#include "data_files.h"
#include "numbered.h"

namespace trireme::ordered_batches_test {
namespace {

using data::expect_error;
using data::OrderedBatches;
using Numbers = std::vector<int64_t>;

// The bytes of a sample of Numbered.
constexpr int64_t kRowBytes = 2 * 3 * sizeof(float) + sizeof(int64_t);

// The reads of a source: their first samples and threads.
class Reads {
 public:
  OrderedBatches::Read of(std::shared_ptr<const Source> source) {
    return [this, source = std::move(source)](const Draws& draws) {
      note(draws.indices[0]);
      Example rows = source->get_batch(draws);
      Batch batch;
      batch.data = rows.data, batch.target = rows.target;
      batch.indices = draws.indices;
      return batch;
    };
  }
  bool wait_for(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(30),
                             [&] { return firsts_.size() >= count; });
  }
  size_t count() {
    const std::lock_guard lock(mutex_);
    return firsts_.size();
  }
  std::set<std::thread::id> threads() {
    const std::lock_guard lock(mutex_);
    return threads_;
  }

 private:
  void note(int64_t first) {
    {
      const std::lock_guard lock(mutex_);
      firsts_.push_back(first);
      threads_.insert(std::this_thread::get_id());
    }
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  Numbers firsts_;
  std::set<std::thread::id> threads_;
};

Numbers all_of(OrderedBatches& batches) {
  Numbers all;
  while (batches.has_next()) {
    const Batch batch = batches.next();
    const at::Tensor target = batch.target;
    for (int64_t row = 0; row < target.size(0); ++row) all.push_back(target[row].item<int64_t>());
  }
  return all;
}

TEST(OrderedBatches, AreTheSameForAnyThreads) {
  const auto source = numbered(40);
  for (const int threads : {0, 1, 3}) {
    Reads reads;
    OrderedBatches batches(source, {5, 28, 4}, {.threads = threads, .batches = 2},
                           reads.of(source));
    const Numbers found = all_of(batches);
    ASSERT_EQ(found.size(), 23U);
    for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], 5 + static_cast<int64_t>(i));
    EXPECT_EQ(reads.count(), 6U);
  }
}

TEST(OrderedBatches, AreReadWhileTheCallerHasOne) {
  const auto source = numbered(40);
  Reads reads;
  OrderedBatches batches(source, {0, 40, 4}, {.threads = 1, .batches = 3}, reads.of(source));
  batches.next();
  EXPECT_TRUE(reads.wait_for(4));
  batches.next();
  EXPECT_TRUE(reads.wait_for(5));
}

TEST(OrderedBatches, StayInTheirMemory) {
  const auto source = numbered(40);
  const auto threads_with = [&](int64_t memory) {
    Reads reads;
    OrderedBatches batches(source, {0, 40, 4},
                           {.threads = 4, .batches = 8, .memory_bytes = memory * 4 * kRowBytes},
                           reads.of(source));
    EXPECT_EQ(all_of(batches).size(), 40U);
    return reads.threads();
  };
  // The place of a batch, and that of the thread that reads it.
  const auto own = std::set{std::this_thread::get_id()};
  EXPECT_EQ(threads_with(0), own);
  EXPECT_EQ(threads_with(1), own);
  EXPECT_EQ(threads_with(2).size(), 2U);
  // Four places: three batches, and that of the thread.
  Reads reads;
  OrderedBatches batches(source, {0, 40, 4},
                         {.threads = 1, .batches = 8, .memory_bytes = 4 * 4 * kRowBytes},
                         reads.of(source));
  batches.next();
  EXPECT_TRUE(reads.wait_for(4));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(reads.count(), 4U);
}

// The error comes for the batch that has it, behind those in front of it.
TEST(OrderedBatches, ThrowTheErrorsOfTheirReads) {
  const auto source = numbered(40);
  for (const int threads : {0, 2}) {
    OrderedBatches batches(source, {0, 40, 4}, {.threads = threads, .batches = 4},
                           [&](const Draws& draws) {
                             if (draws.indices[0] == 8)
                               throw Error(ErrorCode::corrupt, "data", "sample 8 is damaged");
                             return Reads().of(source)(draws);
                           });
    EXPECT_EQ(batches.next().size(), 4);
    EXPECT_EQ(batches.next().size(), 4);
    expect_error([&] { batches.next(); }, ErrorCode::corrupt, {"sample 8 is damaged"});
  }
}

TEST(OrderedBatches, DoNotWaitForEver) {
  const auto source = numbered(40);
  std::promise<void> end;
  const std::shared_future<void> ended = end.get_future().share();
  OrderedBatches batches(source, {0, 40, 4},
                         {.threads = 1, .batches = 1, .timeout = Milliseconds(50)},
                         [&](const Draws& draws) {
                           if (draws.indices[0] > 0) ended.wait_for(std::chrono::seconds(30));
                           return Reads().of(source)(draws);
                         });
  batches.next();
  expect_error([&] { batches.next(); }, ErrorCode::timeout,
               {"the samples from 4 on were not read within 50 ms"});
  end.set_value();
}

}  // namespace
}  // namespace trireme::ordered_batches_test
