#include <trireme/data/load_meter.h>
#include <trireme/data/tuner.h>

#include <gmock/gmock.h>

#include <trireme/base/hash.h>
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace trireme::data {
namespace {

constexpr int64_t kMega = 1 << 20;

// A host on which a replica trains. Times are in seconds.
struct Host {
  double load = 0.1;    // The work of one thread for a batch.
  double computed = 1;  // The part of it on a processor.
  double own = 0;       // The work of a step beside its input, on `compute` cores.
  double cores = 8;
  int compute = 0;
  double jitter = 0;  // The batches that must be ready for threads to be always busy.
  double harm = 0;    // Each thread adds it to the step's own work.
  double noise = 0;   // A share of the time of a window.
  int64_t batch_bytes = kMega;
  int64_t free_bytes = int64_t{1} << 40;

  double step(const LoaderSetting& setting) const {
    const double threads = setting.threads;
    const double ready = std::max(setting.threads, setting.ahead);
    const double smooth = jitter > 0 ? std::min(1.0, ready / (jitter * threads)) : 1;
    const double by_threads = load / (threads * smooth);
    const double by_cores = (load * computed + own * compute) / cores;
    return std::max({by_threads, own + harm * threads, by_cores});
  }
  LoadWindow window(const LoaderSetting& setting, uint64_t number) const {
    const double luck = static_cast<double>(mix64(7, number, 3) % 1000) / 500 - 1;
    const double time = step(setting) * (1 + noise * luck);
    // Threads that share their cores take longer for a batch.
    const bool is_crowded = (load * computed + own * compute) / cores >= step(setting);
    const double busy = is_crowded ? time * setting.threads : load;
    return {time, std::max(0.0, time - own - harm * setting.threads), busy, load * computed,
            free_bytes};
  }
  double best() const {
    double best = 1e9;
    for (int threads = 1; threads <= 32; ++threads)
      for (int ahead = threads; ahead <= 64; ++ahead)
        best = std::min(best, step({threads, ahead}));
    return best;
  }
};

TunerLimits limits_of(const Host& host) {
  return {.cores = host.cores, .compute_threads = host.compute, .memory_bytes = 4096 * kMega};
}

struct Course {
  Tuner tuner;
  int windows = 0;  // Until it settled for the first time.
  std::vector<LoaderSetting> settings = {};
};

Course run(const Host& host, const TunerLimits& limits, LoaderSetting start = {},
           int windows = 40) {
  Course course{Tuner(start, limits)};
  course.tuner.fit(host.batch_bytes);
  for (int i = 0; i < windows; ++i) {
    course.tuner.take(host.window(course.tuner.setting(), static_cast<uint64_t>(i)));
    course.settings.push_back(course.tuner.setting());
    if (course.windows == 0 && course.tuner.is_settled()) course.windows = i + 1;
  }
  return course;
}

TEST(Tuner, ComesNearTheBestOfAGrid) {
  const std::vector<Host> hosts{
      {},  // Without compute: all cores load.
      {.cores = 2},
      {.load = 0.3, .own = 0.1, .compute = 1},  // Three threads keep pace.
      {.load = 1, .own = 0.9, .compute = 4},    // One more is enough.
      {.load = 0.5, .own = 0.1, .compute = 2, .jitter = 3},
      {.load = 0.1, .own = 0.098, .compute = 1, .jitter = 4},
      {.load = 0.4, .computed = 0.1, .own = 0.05, .cores = 4, .compute = 1},  // Waits for files.
      {.load = 0.2, .own = 0.1, .cores = 2, .compute = 1}};
  for (size_t i = 0; i < hosts.size(); ++i) {
    for (const double noise : {0.0, 0.01}) {
      Host host = hosts[i];
      host.noise = noise;
      const Course course = run(host, limits_of(host));
      EXPECT_GE(host.best() / host.step(course.tuner.setting()), 0.95)
          << "host " << i << ", noise " << noise << ": " << course.tuner.setting().threads
          << " threads, " << course.tuner.setting().ahead << " ahead";
      EXPECT_LE(course.windows, 14) << "host " << i;
    }
  }
}

TEST(Tuner, ChangesNothingWhileNobodyWaits) {
  const Host host{.load = 0.05, .own = 0.1, .compute = 2};
  const Course course = run(host, limits_of(host));
  EXPECT_EQ(course.tuner.setting(), LoaderSetting{});
  EXPECT_EQ(course.tuner.reason(), TunedBy::no_waits);
  EXPECT_EQ(course.windows, 1);
}

TEST(Tuner, LeavesTheCoresOfComputeAlone) {
  const Host host{.load = 0.11, .own = 0.1, .cores = 2, .compute = 2};
  const Course course = run(host, limits_of(host));
  EXPECT_EQ(course.tuner.setting().threads, 1);
  EXPECT_EQ(course.tuner.reason(), TunedBy::cores);
}

TEST(Tuner, TakesBackAThreadThatDisturbs) {
  const Host host{.load = 0.2, .own = 0.15, .cores = 4, .compute = 1, .harm = 0.04};
  const Course course = run(host, limits_of(host), {}, 6);
  EXPECT_THAT(course.settings, testing::Contains(testing::Field(&LoaderSetting::threads, 2)));
  EXPECT_EQ(course.tuner.setting().threads, 1);
}

// TensorFlow's issue 33516: tuning that takes all memory.
TEST(Tuner, NeverTakesMoreMemoryThanItMay) {
  for (const int64_t budget : {1 * kMega, 5 * kMega, 23 * kMega, 100 * kMega}) {
    const Host host{.cores = 64, .jitter = 2, .batch_bytes = 2 * kMega};
    TunerLimits limits = limits_of(host);
    limits.memory_bytes = budget;
    const Course course = run(host, limits, {}, 200);
    for (const LoaderSetting& setting : course.settings)
      EXPECT_LE(setting.threads + std::max(setting.threads, setting.ahead),
                std::max<int64_t>(2, budget / host.batch_bytes));
    EXPECT_GE(course.tuner.setting().threads, budget < 23 * kMega ? 1 : 3);
  }
}

TEST(Tuner, GivesBatchesBackAtOnceIfTheyGrow) {
  const Host host{.cores = 16};
  TunerLimits limits = limits_of(host);
  limits.memory_bytes = 48 * kMega;
  Tuner tuner({}, limits);
  tuner.fit(host.batch_bytes);
  for (uint64_t i = 0; i < 20; ++i) tuner.take(host.window(tuner.setting(), i));
  EXPECT_EQ(tuner.setting().threads, 16);
  EXPECT_TRUE(tuner.fit(12 * kMega));
  EXPECT_LE((tuner.setting().threads + tuner.setting().ahead) * 12, 48);
}

TEST(Tuner, LeavesTheLastMemoryOfTheHost) {
  const Host host{.cores = 16, .batch_bytes = 100 * kMega, .free_bytes = 150 * kMega};
  const Course course = run(host, limits_of(host));
  EXPECT_EQ(course.tuner.setting(), LoaderSetting{});
  EXPECT_EQ(course.tuner.reason(), TunedBy::memory);
}

TEST(Tuner, LeavesNumbersThatSomebodyGave) {
  const Host host{.jitter = 3};
  TunerLimits limits = limits_of(host);
  limits.threads_may_change = false;
  for (const LoaderSetting& setting : run(host, limits, {3, 2}).settings)
    EXPECT_EQ(setting.threads, 3);
  limits.ahead_may_change = false;
  limits.memory_bytes = 1;
  const Course course = run(host, limits, {3, 2});
  EXPECT_EQ(course.tuner.setting(), (LoaderSetting{3, 2}));
  EXPECT_EQ(course.tuner.reason(), TunedBy::fixed);
  limits.threads_may_change = true;
  for (const LoaderSetting& setting : run(host, limits, {1, 2}).settings)
    EXPECT_EQ(setting.ahead, 2);
}

TEST(Tuner, FollowsLoadThatChanges) {
  Host host{.load = 0.05, .own = 0.1, .compute = 1};
  Tuner tuner({}, limits_of(host));
  uint64_t i = 0;
  for (; i < 10; ++i) tuner.take(host.window(tuner.setting(), i));
  EXPECT_EQ(tuner.setting().threads, 1);
  host.load = 0.35;  // Another source of a mixture, for example.
  for (; i < 30; ++i) tuner.take(host.window(tuner.setting(), i));
  EXPECT_EQ(tuner.setting().threads, 4);
  host.load = 0.01;  // A cache is full.
  for (; i < 600; ++i) tuner.take(host.window(tuner.setting(), i));
  EXPECT_EQ(tuner.setting(), LoaderSetting{});
}

// A window that others disturb does not decide.
TEST(Tuner, GivesAChangeASecondWindow) {
  const Host host{.cores = 2};
  Tuner tuner({}, limits_of(host));
  EXPECT_TRUE(tuner.take(host.window(tuner.setting(), 0)));
  LoadWindow bad = host.window(tuner.setting(), 1);
  bad.step = bad.waited = 0.2;
  EXPECT_FALSE(tuner.take(bad));
  tuner.take(host.window(tuner.setting(), 2));
  EXPECT_EQ(tuner.setting().threads, 2);
}

TEST(LoadMeter, MeansAreThoseOfItsWindow) {
  LoadMeter meter;
  LoadTotals totals;
  const auto step = [&](double own, double waited) {
    totals.load += 0.3, totals.computed += 0.2, ++totals.batches;
    meter.took(own, waited, totals);
  };
  step(5, 5);  // The first batch starts threads, and counts for nothing.
  EXPECT_FALSE(meter.is_full());
  step(0.1, 0.05);
  EXPECT_FALSE(meter.is_full());
  step(0.1, 0.15);
  EXPECT_TRUE(meter.is_full());
  const LoadWindow window = meter.read(totals);
  EXPECT_DOUBLE_EQ(window.step, 0.2);
  EXPECT_DOUBLE_EQ(window.waited, 0.1);
  EXPECT_NEAR(window.load, 0.3, 1e-12);
  EXPECT_NEAR(window.computed, 0.2, 1e-12);
}

TEST(LoadMeter, AnEvaluationBetweenTwoStepsDoesNotCount) {
  LoadMeter meter;
  LoadTotals totals;
  meter.begin(totals, 0, 1);
  for (int i = 0; i < 5; ++i) meter.took(0.1, 0.1, totals);
  meter.took(60, 0, totals);
  EXPECT_TRUE(meter.is_full());
  EXPECT_DOUBLE_EQ(meter.read(totals).step, 0.2);
}

TEST(LoadMeter, AWindowHasSeveralBatchesOfEachThread) {
  LoadMeter meter;
  meter.begin({}, 2, 8);
  for (int i = 0; i < 2 + 15; ++i) {
    EXPECT_FALSE(meter.is_full()) << i;
    meter.took(0.03, 0, {});
  }
  meter.took(0.03, 0, {});
  EXPECT_TRUE(meter.is_full());
}

}  // namespace
}  // namespace trireme::data
