// The versions that workers compute with, one by one: each worker's pushes move elements of their
// own, so the parameters that a worker gets say how many pushes of each of the others they have.
#include "mortal_job.h"

// This header must come after those of torch.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <random>
#include <thread>

namespace trireme::versions {
namespace {

using lost_servers::kBatch;
using lost_servers::Shape;
using lost_servers::Worker;
using plan::Consistency;
using plan::ConsistencyOptions;
using tests::MortalServers;
using tests::ServedNet;
using tests::soon;

constexpr int kSteps = 40;
constexpr Shape kShape{2, 2, 3};

// Element i of a tensor belongs to worker i mod W.
void give_gradients(ServedNet& net, int worker) {
  for (at::Tensor& each : net.parameters()) {
    at::Tensor gradient = at::zeros_like(each);
    auto* const to = gradient.mutable_data_ptr<double>();
    for (int64_t i = worker; i < gradient.numel(); i += kShape.workers) to[i] = -1;
    each.mutable_grad() = gradient;
  }
}

// How far the elements of each worker have moved in a tensor: the least and the most.
struct Moved {
  std::vector<double> least, most;
};

std::vector<Moved> moved_in(const ServedNet& net) {
  std::vector<Moved> all;
  const ServedNet before;
  const auto now = net.parameters(), then = before.parameters();
  for (size_t tensor = 0; tensor < now.size(); ++tensor) {
    Moved moved{std::vector<double>(kShape.workers, 1e9), std::vector<double>(kShape.workers)};
    const at::Tensor by = (now[tensor] - then[tensor]).detach().contiguous();
    for (int64_t i = 0; i < by.numel(); ++i) {
      const auto worker = static_cast<size_t>(i % kShape.workers);
      const double value = by.const_data_ptr<double>()[i];
      moved.least[worker] = std::min(moved.least[worker], value);
      moved.most[worker] = std::max(moved.most[worker], value);
    }
    all.push_back(moved);
  }
  return all;
}

// Trains, and calls look(worker, step, net, pushed) at each step with what all workers have begun
// to push. A server is killed on the way if `victim` is not -1.
template <typename Look>
void train(const ConsistencyOptions& mode, int victim, const Look& look) {
  MortalServers servers(kShape.servers,
                        lost_servers::options_of<ServedNet>(kShape, mode, SGD{.lr = 1}));
  std::atomic<int64_t> pushed[kShape.workers] = {};
  std::atomic<int> begun = 0;
  std::vector<std::jthread> threads;
  for (int w = 0; w < kShape.workers; ++w)
    threads.emplace_back([&, w] {
      std::mt19937 random(static_cast<unsigned>(w));
      Worker worker(servers, kShape, w);
      if (w == 0) worker.client->initialise(soon());
      int64_t step = worker.client->pull(soon());
      ++begun;
      while (step < kSteps) {
        look(w, step, worker.net, pushed);
        // Some steps are slow, and more of those of the last worker.
        if (random() % 8 < static_cast<unsigned>(w + 1))
          std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
        give_gradients(worker.net, w);
        ++pushed[w];
        step = worker.client->push_pull(kBatch, soon());
      }
      worker.client->leave(soon());
    });
  while (begun < kShape.workers) std::this_thread::sleep_for(Milliseconds(1));
  std::this_thread::sleep_for(Milliseconds(5));
  if (victim >= 0) servers.kill(victim);
}

constexpr double kTiny = 1e-6;  // Of sums in float64.

TEST(Versions, AtTheirOwnPaceWorkersComputeWithNoOlderOnesThanTheBound) {
  for (const ConsistencyOptions mode :
       {ConsistencyOptions{Consistency::stale, 0}, ConsistencyOptions{Consistency::stale, 1},
        ConsistencyOptions{Consistency::stale, 4}, ConsistencyOptions{Consistency::async}})
    for (const int victim : {-1, 0, 1}) {
      std::atomic<int64_t> looked = 0;
      train(mode, victim, [&](int worker, int64_t step, const ServedNet& net, const auto& pushed) {
        const bool has_bound = mode.consistency == Consistency::stale;
        for (const Moved& moved : moved_in(net))
          for (int other = 0; other < kShape.workers; ++other) {
            const auto o = static_cast<size_t>(other);
            const double least = other == worker ? static_cast<double>(step)
                                 : has_bound     ? static_cast<double>(step - mode.staleness)
                                                 : 0.0;
            EXPECT_GE(moved.least[o], least - kTiny)
                << "step " << step << " of worker " << worker << " lacks pushes of worker "
                << other << ", mode " << to_string(mode.consistency) << ", bound "
                << mode.staleness << ", victim " << victim;
            const int64_t most = other == worker ? step : pushed[o].load();
            EXPECT_LE(moved.most[o], static_cast<double>(most) + kTiny) << "counted twice";
          }
        ++looked;
      });
      EXPECT_EQ(looked, int64_t{kSteps} * kShape.workers);
    }
}

TEST(Versions, TogetherWorkersComputeWithExactlyTheStepsBefore) {
  for (const int victim : {-1, 0, 1}) {
    std::atomic<int64_t> looked = 0;
    train({Consistency::sync}, victim, [&](int, int64_t step, const ServedNet& net, const auto&) {
      for (const Moved& moved : moved_in(net))
        for (const auto* const side : {&moved.least, &moved.most})
          for (const double by : *side)
            EXPECT_NEAR(by, static_cast<double>(step) / kShape.workers, kTiny);
      ++looked;
    });
    EXPECT_EQ(looked, int64_t{kSteps} * kShape.workers);
  }
}

// An update is the mean of the first two of three pushes, so it moves each of those by 1/2.
TEST(Versions, WithABackupWorkerEachUpdateHasTheFirstPushes) {
  for (const int victim : {-1, 0, 1})
    train({Consistency::sync, 0, 1}, victim,
          [&](int, int64_t step, const ServedNet& net, const auto& pushed) {
            for (const Moved& moved : moved_in(net)) {
              double all = 0;
              for (size_t w = 0; w < moved.least.size(); ++w) {
                EXPECT_NEAR(moved.least[w], moved.most[w], kTiny);
                EXPECT_LE(moved.most[w], static_cast<double>(pushed[w]) / 2 + kTiny);
                all += moved.least[w];
              }
              EXPECT_GE(all, static_cast<double>(step) - kTiny);  // The others may be ahead.
              EXPECT_NEAR(all, std::round(all), kTiny) << "a part of an update";
            }
          });
}

}  // namespace
}  // namespace trireme::versions
