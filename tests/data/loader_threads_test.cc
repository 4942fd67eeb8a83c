#include <trireme/data/loader.h>
#include <trireme/data/prefetch.h>

#include <ATen/ATen.h>

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <mutex>
#include <set>
#include <thread>

#include "data_files.h"
#include "numbered.h"

namespace trireme::loader_threads_test {
namespace {

using data::expect_error;
using std::chrono::seconds;

// Calls `before` at the start of every get().
class Watched : public Numbered {
 public:
  Watched(int64_t samples, std::function<void(int64_t)> before)
      : Numbered(samples), before_(std::move(before)) {}
  Example get(const Draw& draw) const override {
    const int64_t index = draw.index;
    before_(index);
    return Numbered::get(draw);
  }

 private:
  std::function<void(int64_t)> before_;
};

std::shared_ptr<const Source> watched(int64_t samples, std::function<void(int64_t)> before) {
  return std::make_shared<Watched>(samples, std::move(before));
}

// A door that the test opens.
class Door {
 public:
  void open() { opened_.set_value(); }
  void pass() const {
    if (open_.wait_for(seconds(30)) != std::future_status::ready)
      throw std::runtime_error("the door stayed closed");
  }

 private:
  std::promise<void> opened_;
  std::shared_future<void> open_ = opened_.get_future().share();
};

bool comes_true(const std::function<bool()>& condition) {
  const auto give_up = std::chrono::steady_clock::now() + seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > give_up) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST(LoaderThreads, KeepTheOrderOfBatchesInAnyOrderOfFinishing) {
  // The first batch is done only after the second and the third.
  Door others_done;
  std::atomic<int> done{0};
  const auto source = watched(64, [&](int64_t index) {
    if (index == 0) others_done.pass();
    if ((index == 7 || index == 11) && ++done == 2) others_done.open();
  });
  Loader loader(source, {.batch = 4, .shuffle = false, .threads = 3, .prefetch = 3});
  for (int64_t step = 0; step < 16; ++step)
    ASSERT_THAT(loader.next().indices,
                testing::ElementsAre(4 * step, 4 * step + 1, 4 * step + 2, 4 * step + 3));
}

TEST(LoaderThreads, GiveTheSameBatchesForAnyNumberOfThreads) {
  Loader caller(numbered(50), {.batch = 8, .seed = 4, .threads = 0});
  const std::vector<int64_t> expected = next_samples(caller, 30);
  for (const int threads : {1, 2, 5}) {
    for (const int prefetch : {0, 1, 7}) {
      Loader loader(numbered(50),
                    {.batch = 8, .seed = 4, .threads = threads, .prefetch = prefetch});
      EXPECT_EQ(next_samples(loader, 30), expected)
          << threads << " threads, prefetch " << prefetch;
    }
  }
}

// Loading takes a thread's time and no processor's, so that the tuner adds threads.
TEST(LoaderThreads, GiveTheSameBatchesWhileTheirNumberIsTuned) {
  const auto slow =
      watched(512, [](int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
  Loader caller(numbered(512), {.batch = 8, .seed = 4, .threads = 0});
  Loader tuned(slow, {.batch = 8, .seed = 4});
  EXPECT_EQ(tuned.tuning().setting, (data::LoaderSetting{1, 2}));
  EXPECT_TRUE(tuned.tuning().tunes_threads);
  EXPECT_FALSE(tuned.tuning().is_settled);
  int most = 1;
  const auto give_up = std::chrono::steady_clock::now() + seconds(30);
  while (most < 4 && std::chrono::steady_clock::now() < give_up) {
    ASSERT_EQ(next_samples(tuned, 8), next_samples(caller, 8));
    most = std::max(most, tuned.tuning().setting.threads);
  }
  EXPECT_GE(most, 4);
  EXPECT_GE(tuned.tuning().setting.ahead, tuned.tuning().setting.threads);
}

TEST(LoaderThreads, StayAsManyAsSomebodyAskedFor) {
  const auto slow =
      watched(512, [](int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
  Loader fixed(slow, {.batch = 8, .threads = 2, .prefetch = 3});
  next_samples(fixed, 40);
  EXPECT_EQ(fixed.tuning().setting, (data::LoaderSetting{2, 3}));
  EXPECT_EQ(fixed.tuning().reason, data::TunedBy::fixed);
}

TEST(LoaderThreads, BeginWithWhatWasFoundEarlier) {
  Loader again(numbered(64), {.batch = 8, .start = data::LoaderSetting{3, 6}});
  EXPECT_EQ(again.tuning().setting, (data::LoaderSetting{3, 6}));
  Loader half(numbered(64), {.batch = 8, .threads = 2, .start = data::LoaderSetting{3, 6}});
  EXPECT_EQ(half.tuning().setting, (data::LoaderSetting{2, 6}));
  EXPECT_FALSE(half.tuning().tunes_threads);
}

TEST(LoaderThreads, HoldNoMoreBatchesThanFitIntoMemory) {
  Loader loader(numbered(64),
                {.batch = 8, .start = data::LoaderSetting{4, 32}, .memory_bytes = 1});
  next_samples(loader, 2);
  EXPECT_EQ(loader.tuning().setting, (data::LoaderSetting{1, 1}));
}

// Threads come and go while tasks wait and run.
TEST(LoaderThreads, TakeTasksInAnyChangingNumber) {
  data::Prefetch prefetch(1, 0, 1);
  int64_t added = 0;
  for (int64_t taken = 0; taken < 400; ++taken) {
    for (; added < taken + 6; ++added)
      prefetch.add(data::Prefetch::Task([added] { return Batch{.indices = {added}}; }));
    prefetch.set_threads(1 + static_cast<int>(taken % 5));
    ASSERT_TRUE(prefetch.wait(Milliseconds(30'000)));
    ASSERT_EQ(prefetch.take().indices.at(0), taken);
  }
}

TEST(LoaderThreads, LoadAheadByTheRequestedNumberOfBatches) {
  std::mutex mutex;
  std::set<int64_t> loaded;
  Door ahead;
  const auto source = watched(100, [&](int64_t index) {
    const std::lock_guard lock(mutex);
    loaded.insert(index);
    if (loaded.size() == 4) ahead.open();
  });
  Loader loader(source, {.batch = 1, .shuffle = false, .threads = 1, .prefetch = 3});
  loader.next();
  // The threads load the returned batch and three more, without another call.
  ahead.pass();
  const std::lock_guard lock(mutex);
  EXPECT_THAT(loaded, testing::ElementsAre(0, 1, 2, 3));
}

TEST(LoaderThreads, AreNotUsedIfTheirNumberIsZero) {
  const std::thread::id caller = std::this_thread::get_id();
  const auto source =
      watched(8, [caller](int64_t) { EXPECT_EQ(std::this_thread::get_id(), caller); });
  Loader loader(source, {.batch = 4, .threads = 0});
  next_samples(loader, 4);
}

TEST(LoaderThreads, PassOnAnExceptionForItsBatchAndContinue) {
  for (const int threads : {0, 1, 3}) {
    auto broken = std::make_shared<std::atomic<bool>>(true);
    const auto source = watched(16, [broken](int64_t index) {
      if (index == 9 && *broken) throw std::runtime_error("sample 9 cannot be read");
    });
    Loader loader(source, {.batch = 4, .shuffle = false, .threads = threads});
    EXPECT_THAT(next_samples(loader, 2), testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
    for (int attempt = 0; attempt < 2; ++attempt) {
      EXPECT_THAT([&] { loader.next(); },
                  testing::ThrowsMessage<std::runtime_error>("sample 9 cannot be read"));
      EXPECT_EQ(loader.position(), (plan::DataPosition{0, 8}));
    }
    *broken = false;
    EXPECT_THAT(loader.next().indices, testing::ElementsAre(8, 9, 10, 11));
    EXPECT_THAT(loader.next().indices, testing::ElementsAre(12, 13, 14, 15));
  }
}

TEST(LoaderThreads, LetTheCallerSkipABatchThatCannotBeRead) {
  const auto source = watched(12, [](int64_t index) {
    if (index == 5) throw std::runtime_error("sample 5 cannot be read");
  });
  Loader loader(source, {.batch = 4, .shuffle = false, .threads = 2});
  loader.next();
  EXPECT_THROW(loader.next(), std::runtime_error);
  loader.seek({0, 8});
  EXPECT_THAT(loader.next().indices, testing::ElementsAre(8, 9, 10, 11));
}

TEST(LoaderThreads, EndWithTheLoaderInAnyState) {
  { Loader untouched(numbered(100), {.batch = 4, .threads = 4}); }
  {
    Loader ready(numbered(100), {.batch = 4, .threads = 4, .prefetch = 8});
    ready.next();
  }
  {
    Loader failing(watched(100, [](int64_t) { throw std::runtime_error("no"); }),
                   {.batch = 4, .threads = 4});
    EXPECT_THROW(failing.next(), std::runtime_error);
  }
}

TEST(LoaderThreads, StartNoFurtherCallWhenTheLoaderIsDestroyed) {
  Door door;
  std::atomic<int> calls{0};
  const auto source = watched(100, [&](int64_t index) {
    ++calls;
    if (index == 1) door.pass();
  });
  auto loader = std::make_unique<Loader>(
      source, LoaderOptions{.batch = 1, .shuffle = false, .threads = 1, .prefetch = 50});
  loader->next();
  // The thread loads sample 1, and 49 batches wait for it.
  ASSERT_TRUE(comes_true([&] { return calls == 2; }));
  std::thread destroyer([&] { loader.reset(); });
  // Each waiting batch holds the source. All of them are gone when at most four holders remain:
  // the test, the loader, its announcements and the running call.
  EXPECT_TRUE(comes_true([&] { return source.use_count() <= 4; }));
  door.open();
  destroyer.join();
  EXPECT_EQ(calls, 2);
}

TEST(LoaderThreads, GiveUpAWaitAtItsDeadlineAndCanWaitAgain) {
  Door slow;
  Loader loader(watched(8, [&](int64_t) { slow.pass(); }),
                {.batch = 4, .shuffle = false, .threads = 1, .timeout = Milliseconds(20)});
  expect_error([&] { loader.next(); }, ErrorCode::timeout, {"epoch 0, sample 0", "20 ms"});
  EXPECT_EQ(loader.position(), (plan::DataPosition{0, 0}));
  slow.open();
  EXPECT_TRUE(comes_true([&] {
    try {
      EXPECT_THAT(loader.next().indices, testing::ElementsAre(0, 1, 2, 3));
      return true;
    } catch (const Error&) {  // A slow machine may need several waits.
      return false;
    }
  }));
}

TEST(LoaderThreads, NameASourceThatGivesTheWrongNumberOfRows) {
  class Short : public Numbered {
   public:
    using Numbered::Numbered;
    Example get_batch(const Draws&) const override { return Numbered::get_batch({0}); }
  };
  for (const int threads : {0, 2}) {
    Loader loader(std::make_shared<Short>(8), {.batch = 4, .threads = threads});
    expect_error([&] { loader.next(); }, ErrorCode::invalid_argument,
                 {"get_batch()", "[1, 2, 3]", "4 samples"});
  }
}

TEST(LoaderThreads, SurviveAMoveOfTheLoader) {
  Loader first(numbered(12), {.batch = 4, .shuffle = false, .threads = 2});
  first.next();
  Loader second = std::move(first);
  EXPECT_THAT(second.next().indices, testing::ElementsAre(4, 5, 6, 7));
}

// Workers at their own pace take every other batch or so, by lease.
TEST(LoaderThreads, ReadAheadWhatASeekWillAskFor) {
  std::mutex mutex;
  std::vector<int64_t> loaded;
  const auto is_loaded = [&](int64_t index) {
    const std::lock_guard lock(mutex);
    return std::ranges::count(loaded, index) > 0;
  };
  const auto source = watched(64, [&](int64_t index) {
    const std::lock_guard lock(mutex);
    loaded.push_back(index);
  });
  Loader loader(source, {.batch = 1, .shuffle = false, .threads = 1, .prefetch = 2});
  loader.read_ahead_every(3);
  for (int64_t at = 0; at < 30; at += 3) {
    loader.seek({0, at});
    EXPECT_EQ(loader.next().indices, std::vector{at});
    EXPECT_TRUE(comes_true([&] { return is_loaded(at + 3) && is_loaded(at + 6); }));
  }
  EXPECT_THAT(loaded, testing::ElementsAre(0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33));
  // A guess that was wrong: the batches are right, and what was read ahead is dropped.
  loader.seek({0, 31});
  EXPECT_EQ(loader.next().indices, std::vector<int64_t>{31});
  EXPECT_EQ(loader.next().indices, std::vector<int64_t>{32});
  loader.seek({0, 2});
  EXPECT_EQ(loader.next().indices, std::vector<int64_t>{2});
  loader.read_ahead_every(1);
  expect_error([&] { loader.read_ahead_every(0); }, ErrorCode::invalid_argument, {"0-th"});
}

}  // namespace
}  // namespace trireme::loader_threads_test
