// Servers that are lost while workers train, and come back: nothing is lost, and nothing counts
// twice.
#include "mortal_job.h"

// This header must come after those of torch.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <random>

#include "../base/expect_error.h"

namespace trireme::lost_servers {
namespace {

using plan::Consistency;
using tests::data_of;
using tests::Mlp;
using tests::on_ranks;
using tests::thread_groups;

// ---- Workers with push and pull ----

// The mean losses of workers that share each batch, while `meanwhile` runs.
std::vector<double> losses_of(MortalServers& servers, const Shape& shape, int steps,
                              const std::function<void()>& meanwhile) {
  std::vector<std::vector<double>> parts(static_cast<size_t>(shape.workers));
  std::vector<std::jthread> threads;
  std::atomic<int> begun = 0;
  for (int w = 0; w < shape.workers; ++w)
    threads.emplace_back([&, w] {
      Worker worker(servers, shape, w);
      if (w == 0) worker.client->initialise(soon());
      int64_t step = worker.client->pull(soon());
      ++begun;
      for (int i = 0; i < steps; ++i) {
        EXPECT_EQ(step, i);
        const tests::Data mine = data_of(kBatch, i).share(w, shape.workers);
        parts[static_cast<size_t>(w)].push_back(worker.backward(mine) *
                                                static_cast<double>(mine.size()) / kBatch);
        if (i % 3 == 2) {  // Both ways of a push.
          worker.client->push(mine.size(), soon());
          step = worker.client->pull(soon());
        } else {
          step = worker.client->push_pull(mine.size(), soon());
        }
      }
    });
  while (begun < shape.workers) std::this_thread::sleep_for(Milliseconds(1));
  meanwhile();
  threads.clear();
  std::vector<double> losses(static_cast<size_t>(steps));
  for (const auto& part : parts)
    for (size_t i = 0; i < losses.size(); ++i) losses[i] += part[i];
  return losses;
}

TEST(LostServers, SynchronousStepsGoOnWithTheLossesOfOneDevice) {
  std::mt19937 random(1);
  const OptimizerFactory optimizer = Adam{.lr = 0.02};
  constexpr int kSteps = 60;
  const std::vector<double> alone = tests::losses_on_one_device(optimizer, kSteps);
  for (const Shape shape : {Shape{2, 2, 2}, Shape{3, 2, 3}, Shape{4, 3, 2}, Shape{2, 2, 1}})
    for (int victim = 0; victim < shape.servers; ++victim) {
      MortalServers servers(shape.servers,
                            options_of<ServedNet>(shape, {Consistency::sync}, optimizer));
      const auto losses = losses_of(servers, shape, kSteps, [&] {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 8000));
        servers.kill(victim);
        if (shape.replication < 3) return;
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
        servers.kill((victim + 1) % shape.servers);  // Its neighbour too.
      });
      for (size_t i = 0; i < losses.size(); ++i)
        EXPECT_NEAR(losses[i], alone[i], 1e-10)
            << shape.servers << " servers, server " << victim << ", step " << i;
    }
}

TEST(LostServers, EachPushCountsOnce) {
  std::mt19937 random(2);
  for (const plan::ConsistencyOptions mode : {plan::ConsistencyOptions{Consistency::async},
                                              {Consistency::stale, 1},
                                              {Consistency::delay_compensated}}) {
    const Shape shape{3, 2, 3};
    for (int victim = 0; victim < shape.servers; ++victim) {
      // With a constant gradient each push moves the parameters by the same, so they count pushes.
      MortalServers servers(shape.servers, options_of<ServedNet>(shape, mode, SGD{.lr = 1}));
      constexpr int kSteps = 40;
      std::vector<std::jthread> threads;
      std::atomic<int> begun = 0;
      for (int w = 0; w < shape.workers; ++w)
        threads.emplace_back([&, w] {
          Worker worker(servers, shape, w);
          if (w == 0) worker.client->initialise(soon());
          worker.client->pull(soon());
          ++begun;
          for (int i = 0; i < kSteps; ++i) {
            for (at::Tensor& each : worker.net.parameters())
              each.mutable_grad() = at::full_like(each, -1);
            worker.client->push_pull(kBatch, soon());
          }
        });
      while (begun < shape.workers) std::this_thread::sleep_for(Milliseconds(1));
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 8000));
      servers.kill(victim);
      threads.clear();
      if (mode.consistency == Consistency::delay_compensated) continue;  // They are corrected.
      Worker reader(servers, shape, 0);
      reader.client->pull(soon());
      const ServedNet before;
      const auto now = reader.net.parameters(), then = before.parameters();
      for (size_t i = 0; i < now.size(); ++i) {
        const at::Tensor moved = now[i] - then[i];
        EXPECT_NEAR(moved.min().item<double>(), kSteps * shape.workers, 1e-6);
        EXPECT_NEAR(moved.max().item<double>(), kSteps * shape.workers, 1e-6);
      }
    }
  }
}

TEST(LostServers, PushesWithAPullAfterTheLastOneAloneCountEach) {
  constexpr int kPushes = 4;
  const Shape shape{2, 2, 1};
  for (int kill_before = 0; kill_before <= kPushes; ++kill_before) {
    MortalServers servers(2, options_of<ServedNet>(shape, {Consistency::async}, SGD{.lr = 1}));
    Worker worker(servers, shape, 0);
    worker.client->initialise(soon());
    worker.client->pull(soon());
    for (int i = 0; i <= kPushes; ++i) {
      if (i == kill_before) servers.kill(0);
      for (at::Tensor& each : worker.net.parameters())
        each.mutable_grad() = at::full_like(each, -1);
      if (i < kPushes)
        worker.client->push(kBatch, soon());
      else
        worker.client->pull(soon());
    }
    const ServedNet before;
    EXPECT_NEAR((worker.net.parameters()[0] - before.parameters()[0]).max().item<double>(),
                kPushes, 1e-6)
        << "killed before push " << kill_before;
  }
}

// Two clients of which one reads the first servers, and the other what is left without them.
TEST(LostServers, CopiesHaveTheSameBits) {
  for (const plan::ConsistencyOptions mode : {plan::ConsistencyOptions{Consistency::async},
                                              {Consistency::sync},
                                              {Consistency::delay_compensated}}) {
    const Shape shape{2, 2, 2};
    MortalServers servers(2, options_of<ServedNet>(shape, mode, Adam{.lr = 0.02}));
    {
      std::vector<std::jthread> threads;
      for (int w = 0; w < shape.workers; ++w)
        threads.emplace_back([&, w] {
          Worker worker(servers, shape, w);
          if (w == 0) worker.client->initialise(soon());
          worker.client->pull(soon());
          for (int i = 0; i < 30; ++i) {
            worker.backward(data_of(kBatch, i).share(w, shape.workers));
            worker.client->push_pull(kBatch / 2, soon());
          }
        });
    }
    const auto state_now = [&](int victim) {
      if (victim >= 0) servers.kill(victim);
      Worker reader(servers, shape, 0);
      const OptimizerState state = reader.client->read_state(soon());
      return sha256_of(state_of(reader.net).parameters) + sha256_of(state.tensors);
    };
    const std::string of_all = state_now(-1);
    EXPECT_EQ(state_now(1), of_all) << to_string(mode.consistency);
    EXPECT_EQ(servers.at(0).facts().failovers, 0) << "reading is no step";
  }
}

TEST(LostServers, AServerThatComesBackGetsItsPiecesAndTheClock) {
  const OptimizerFactory optimizer = Adam{.lr = 0.02};
  const Shape shape{2, 2, 1};
  const std::vector<double> alone = tests::losses_on_one_device(optimizer, 24);
  MortalServers servers(2, options_of<ServedNet>(shape, {Consistency::sync}, optimizer));
  Worker worker(servers, shape, 0);
  worker.client->initialise(soon());
  worker.client->pull(soon());
  for (int step = 0; step < 24; ++step) {
    EXPECT_NEAR(worker.backward(data_of(kBatch, step)), alone[static_cast<size_t>(step)], 1e-10);
    // Each of them is lost in turn, and all depends on the other one meanwhile.
    if (step % 6 == 2) servers.kill(step / 6 % 2);
    EXPECT_EQ(worker.client->push_pull(kBatch, soon()), step + 1);
    if (step % 6 == 4) {
      const int server = step / 6 % 2;
      EXPECT_THAT(worker.client->missing(), ::testing::ElementsAre(server));
      servers.start(server);
      worker.client->restore(server, *servers.place(server), soon());
      EXPECT_THAT(worker.client->missing(), ::testing::IsEmpty());
    }
  }
  EXPECT_EQ(servers.at(1).facts().failovers, 0) << "it was lost after it had taken a place";
  EXPECT_EQ(servers.at(0).facts().failovers, 1);
}

TEST(LostServers, PiecesThatNobodyHasAreAnError) {
  const Shape shape{3, 2, 1};
  MortalServers servers(3, options_of<ServedNet>(shape, {Consistency::sync}, SGD{.lr = 0.1}));
  Worker worker(servers, shape, 0);
  worker.client->initialise(soon());
  worker.client->pull(soon());
  worker.backward(data_of(kBatch, 0));
  servers.kill(1);
  worker.client->push_pull(kBatch, soon());
  EXPECT_FALSE(worker.client->has_lost_pieces());
  servers.kill(2);
  EXPECT_THAT(message_of(ErrorCode::peer_lost, [&] { worker.client->push_pull(kBatch, soon()); }),
              ::testing::ContainsRegex("no server has the pieces of server 1 any more: lost are "
                                       "server 1 \\([0-9.:]+; it was killed\\), server 2 "));
  EXPECT_TRUE(worker.client->has_lost_pieces());
  EXPECT_THAT(message_of(ErrorCode::peer_lost, [&] { worker.client->pull(soon()); }),
              ::testing::HasSubstr("no server has the pieces of server 1"));
}

// One worker hears that the clock is lost, and the other one still reaches it.
TEST(LostServers, APushThatADeposedClockTookIsMadeAgain) {
  const Shape shape{2, 2, 2};
  MortalServers servers(2, options_of<ServedNet>(shape, {Consistency::async}, SGD{.lr = 1}));
  std::atomic<bool> second_knows = false;
  Worker first(servers, shape, 0), second(servers, shape, 1, [&](int server, int which) {
    return second_knows && servers.is_lost(server, which);
  });
  first.client->initialise(soon());
  for (Worker* const each : {&first, &second}) {
    each->client->pull(soon());
    for (at::Tensor& parameter : each->net.parameters())
      parameter.mutable_grad() = at::full_like(parameter, -1);
  }
  first.client->push_pull(kBatch, soon());
  servers.declare_lost(0);
  first.client->push_pull(kBatch, soon());
  std::jthread later([&] {
    std::this_thread::sleep_for(Milliseconds(100));
    second_knows = true;
  });
  second.client->push_pull(kBatch, soon());
  first.client->pull(soon());
  const ServedNet before;
  for (Worker* const each : {&first, &second}) {
    const at::Tensor moved = each->net.in->weight - before.in->weight;
    EXPECT_NEAR(moved.min().item<double>(), 3, 1e-9);
    EXPECT_NEAR(moved.max().item<double>(), 3, 1e-9);
  }
}

// ---- Engines ----

// The progress of the ranks, for the thread that ends servers meanwhile.
class Watch {
 public:
  explicit Watch(int ranks) : done_(static_cast<size_t>(ranks)) {}
  // Counts a rank as ended, however it ends.
  class Rank {
   public:
    Rank(Watch& watch, int rank) : watch_(watch), rank_(static_cast<size_t>(rank)) {}
    ~Rank() { ++watch_.ended_; }
    void advance() { ++watch_.done_[rank_]; }

   private:
    Watch& watch_;
    const size_t rank_;
  };
  bool is_over() const { return ended_ == std::ssize(done_); }
  std::vector<int64_t> done() const { return {done_.begin(), done_.end()}; }
  // Waits until each rank has begun two more batches than it had.
  void wait_for_all_after(const std::vector<int64_t>& before) const {
    for (size_t rank = 0; rank < done_.size(); ++rank)
      while (!is_over() && done_[rank] < before[rank] + 2)
        std::this_thread::sleep_for(Milliseconds(1));
  }

 private:
  std::vector<std::atomic<int64_t>> done_;  // [rank]: batches.
  std::atomic<int> ended_ = 0;
};

// Servers are lost and come back, one at a time, until all ranks have ended. Returns how many.
int kill_and_restart(MortalServers& servers, const Shape& shape, unsigned seed,
                     const Watch& watch) {
  std::mt19937 random(seed);
  int lost = 0;
  while (!watch.is_over()) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 8000));
    const int victim = static_cast<int>(random() % static_cast<unsigned>(shape.servers));
    servers.kill(victim);
    servers.start(victim);
    ++lost;
    // Another one may be lost when this one has its pieces again, for all ranks.
    while (!watch.is_over() && servers.at(victim).facts().pushes == 0)
      std::this_thread::sleep_for(Milliseconds(1));
    watch.wait_for_all_after(watch.done());
  }
  return lost;
}

TEST(LostServers, StepsTogetherGoOnWithTheLossesOfOneDevice) {
  const OptimizerFactory optimizer = SGD{.lr = 0.1, .momentum = 0.9};
  constexpr int kSteps = 400;
  for (const Shape shape : {Shape{2, 2, 2}, Shape{3, 2, 3}}) {
    std::vector<double> alone;
    {
      const auto groups = thread_groups(1);
      EngineSetting setting = tests::setting_of(groups[0], std::make_shared<Mlp>(), optimizer);
      setting.options.clip_norm = 0.5;
      const auto engine = find_strategy("one_device").make(setting);
      for (int step = 0; step < kSteps; ++step)
        alone.push_back(tests::take_step(*engine, data_of(kBatch, step), step + 1).loss);
    }
    MortalServers servers(shape.servers, options_of<Mlp>(shape, {Consistency::sync}, optimizer));
    const auto groups = thread_groups(shape.workers);
    Watch watch(shape.workers);
    int lost = 0;
    std::jthread killer([&] { lost = kill_and_restart(servers, shape, 3, watch); });
    Json told;
    on_ranks(groups, [&](Group& group) {
      Watch::Rank watched(watch, group.rank());
      const auto engine =
          engine_of(groups[static_cast<size_t>(group.rank())], std::make_shared<Mlp>(),
                    access_to(servers, shape, {}), optimizer, 0.5);
      for (int step = 0; step < kSteps; ++step) {
        const StepOutcome outcome =
            tests::take_step(*engine, data_of(kBatch, step), step + 1, 1 + step % 2);
        ASSERT_NEAR(outcome.loss, alone[static_cast<size_t>(step)], 1e-10) << "step " << step;
        watched.advance();
      }
      const Json facts = engine->facts_for_report();
      if (group.rank() == 0) told = facts.at("parameter_server");
    });
    killer.join();
    EXPECT_EQ(told.at("replication"), 2);
    EXPECT_GT(lost, 1);
  }
}

// The state of a worker has no version of pieces whose server came back just before.
TEST(LostServers, AGenerationThatBeginsAfterARestoreKeepsTheOptimizersState) {
  const OptimizerFactory optimizer = SGD{.lr = 0.1, .momentum = 0.9};
  for (int victim = 0; victim < 2; ++victim) {
    const Shape shape{2, 2, 1};
    MortalServers servers(2, options_of<Mlp>(shape, {Consistency::sync}, optimizer));
    const auto groups = thread_groups(1);
    const auto alone = find_strategy("one_device").make([&] {
      EngineSetting setting = tests::setting_of(groups[0], std::make_shared<Mlp>(), optimizer);
      setting.strategy = "one_device";
      return setting;
    }());
    const auto net = std::make_shared<Mlp>();
    ServerAccess access = access_to(servers, shape, {});
    auto engine = engine_of(groups[0], net, access, optimizer);
    const auto expect_step = [&](int step) {
      EXPECT_NEAR(tests::take_step(*engine, data_of(kBatch, step), step + 1).loss,
                  tests::take_step(*alone, data_of(kBatch, step), step + 1).loss, 1e-10)
          << "server " << victim << ", step " << step;
    };
    for (int step = 0; step < 5; ++step) expect_step(step);
    // The next step restores the server, after its update.
    servers.kill(victim);
    expect_step(5);
    servers.start(victim);
    std::this_thread::sleep_for(Milliseconds(120));
    expect_step(6);
    const EngineState state = engine->state();
    const auto versions = state.counters.at("servers").at("versions");
    EXPECT_EQ(versions.at(static_cast<size_t>(victim)), -1) << "it was restored";
    ++access.generation;
    const IncomingState incoming{state.counters, {}, /*model_is_new=*/false};
    engine = engine_of(groups[0], net, access, optimizer);
    engine->begin_load(incoming);
    engine->end_load();
    for (int step = 7; step < 12; ++step) expect_step(step);
  }
}

TEST(LostServers, RanksAtTheirOwnPaceDoEachBatchOnce) {
  const std::vector<plan::ConsistencyOptions> modes = {{Consistency::async},
                                                       {Consistency::stale, 1},
                                                       {Consistency::delay_compensated},
                                                       {Consistency::sync, 0, 1}};
  unsigned seed = 10;
  for (const auto& mode : modes)
    for (const Shape shape : {Shape{2, 2, 2}, Shape{3, 2, 3}}) {
      MortalServers servers(shape.servers, options_of<Mlp>(shape, mode, SGD{.lr = 0.05}));
      const auto groups = thread_groups(shape.workers);
      Watch watch(shape.workers);
      int lost = 0;
      std::jthread killer([&] { lost = kill_and_restart(servers, shape, ++seed, watch); });
      std::vector<std::vector<int64_t>> counted(static_cast<size_t>(shape.workers));
      constexpr int64_t kBatches = 160;
      on_ranks(groups, [&](Group& group) {
        Watch::Rank watched(watch, group.rank());
        const auto rank = static_cast<size_t>(group.rank());
        const auto engine = engine_of(groups[rank], std::make_shared<Mlp>(),
                                      access_to(servers, shape, mode), SGD{.lr = 0.05});
        int64_t from = 0;
        RoundRequest request;
        request.load = [&](int64_t number) {
          watched.advance();
          std::this_thread::sleep_for(Milliseconds(1));
          Batch batch = tests::batch_of(data_of(kBatch, from + number), 0, 1);
          if ((from + number) % 50 == 7) batch.data.fill_(NAN);  // It is skipped.
          return batch;
        };
        request.rates = [] { return std::vector<double>{0.05}; };
        request.counted = [&](const CountedPass& pass) {
          EXPECT_EQ(pass.loss.has_value(), (from + pass.number) % 50 != 7);
          counted[rank].push_back(from + pass.number);
        };
        // A round may end early, so that a server gets its pieces again.
        while (from < kBatches) {
          group.barrier();
          request.id = from + 1;
          request.batches = std::min<int64_t>(60, kBatches - from);
          const RoundEnd end = engine->own_pace()->round(request);
          ASSERT_FALSE(end.stop || end.regroup);
          from += end.batches;
        }
      });
      killer.join();
      EXPECT_GT(lost, 1);
      for (const auto& batches : counted) {
        std::vector<int> times(static_cast<size_t>(kBatches));
        for (const int64_t batch : batches) ++times[static_cast<size_t>(batch)];
        EXPECT_THAT(times, ::testing::Each(1)) << to_string(mode.consistency);
        EXPECT_EQ(batches, counted[0]) << "in the same order";
      }
    }
}

}  // namespace
}  // namespace trireme::lost_servers
