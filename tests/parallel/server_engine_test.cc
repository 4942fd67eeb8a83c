// The engine of workers of parameter servers, on ranks that are threads, over real channels.
#include "engines.h"
// This header must come after those of torch.
#include <gmock/gmock.h>

#include <trireme/net/control.h>
#include <trireme/parallel/own_pace.h>
#include <trireme/parallel/servers/parameter_server.h>
#include <trireme/parallel/servers/server_access.h>
#include <trireme/parallel/servers/server_engine.h>
#include <trireme/plan/server_plan.h>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>

#include "../base/expect_error.h"

namespace trireme::server_engine_test {
namespace {

using plan::Consistency;
using tests::data_of;
using tests::Mlp;
using tests::on_ranks;
using tests::thread_groups;

constexpr int64_t kBatch = 18;

// The servers of a job, in this process.
struct Job {
  Job(int servers, int workers, plan::ConsistencyOptions consistency = {},
      OptimizerFactory with = SGD{.lr = 0.1, .momentum = 0.9})
      : optimizer(std::move(with)) {
    access.options.servers = servers;
    access.options.consistency = consistency;
    access.options.patience = Milliseconds(20000);
    access.token = net::make_token();
    access.look = [this] {
      if (has_lost_one) throw Error(ErrorCode::peer_lost, "test", "a rank was lost");
    };
    const plan::PlacementFacts facts{specs_of(state_of(Mlp()).parameters), servers};
    for (int i = 0; i < servers; ++i)
      all.push_back(std::make_unique<ParameterServer>(
          net::Endpoint{"127.0.0.1", 0}, access.token,
          ParameterServerOptions{.placement = plan::plan_placement(facts),
                                 .server = i,
                                 .optimizer = optimizer,
                                 .consistency = consistency,
                                 .workers = workers,
                                 .refuses_nonfinite = false}));
    access.find = [this](Deadline) {
      ServerPlaces endpoints;
      for (const auto& server : all) endpoints.push_back(server->endpoint());
      return endpoints;
    };
  }
  std::unique_ptr<Engine> engine(std::shared_ptr<Group> group, std::shared_ptr<Mlp> net,
                                 int generation = 0, double clip_norm = 0) const {
    EngineSetting setting = tests::setting_of(std::move(group), std::move(net), optimizer);
    setting.strategy = "parameter_server";
    setting.options.clip_norm = clip_norm;
    ServerAccess own = access;
    own.generation = generation;
    setting.servers = std::make_shared<ServerAccess>(own);
    return make_server_engine(setting);
  }
  OptimizerFactory optimizer;
  ServerAccess access;
  std::atomic<bool> has_lost_one = false;
  std::vector<std::unique_ptr<ParameterServer>> all;
};

// An engine of one rank without servers, for comparison.
std::unique_ptr<Engine> one_device(const std::shared_ptr<Group>& group,
                                   const std::shared_ptr<Mlp>& net,
                                   const OptimizerFactory& optimizer, double clip_norm = 0) {
  EngineSetting setting = tests::setting_of(group, net, optimizer);
  setting.options.clip_norm = clip_norm;
  return find_strategy("one_device").make(setting);
}

std::vector<double> losses_alone(const OptimizerFactory& optimizer, double clip_norm, int steps) {
  const auto groups = thread_groups(1);
  const auto engine = one_device(groups[0], std::make_shared<Mlp>(), optimizer, clip_norm);
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step)
    losses.push_back(tests::take_step(*engine, data_of(kBatch, step), step + 1).loss);
  return losses;
}

TEST(ServerEngine, StepsTogetherGiveTheLossesOfOneDevice) {
  const std::vector<OptimizerFactory> optimizers = {SGD{.lr = 0.1, .momentum = 0.9},
                                                    Adam{.lr = 0.01}};
  for (const OptimizerFactory& optimizer : optimizers)
    for (const double clip_norm : {0.0, 0.2}) {
      const std::vector<double> alone = losses_alone(optimizer, clip_norm, 8);
      for (const int servers : {1, 3})
        for (const int ranks : {1, 4}) {  // 18 samples on 4 ranks are uneven shares.
          const Job job(servers, ranks, {}, optimizer);
          const auto groups = thread_groups(ranks);
          on_ranks(groups, [&](Group& group) {
            const auto net = std::make_shared<Mlp>();
            const auto engine =
                job.engine(groups[static_cast<size_t>(group.rank())], net, 0, clip_norm);
            for (int step = 0; step < 8; ++step) {
              const StepOutcome outcome =
                  tests::take_step(*engine, data_of(kBatch, step), step + 1, 1 + step % 2);
              EXPECT_NEAR(outcome.loss, alone[static_cast<size_t>(step)], 1e-10)
                  << servers << " servers, " << ranks << " ranks, step " << step;
              EXPECT_TRUE(outcome.updated);
            }
          });
          for (const auto& server : job.all) EXPECT_EQ(server->facts().updates, 8);
        }
    }
}

TEST(ServerEngine, AStepWithALossThatIsNotFiniteChangesNothing) {
  const Job job(2, 2);
  const auto groups = thread_groups(2);
  on_ranks(groups, [&](Group& group) {
    const auto net = std::make_shared<Mlp>();
    const auto engine = job.engine(groups[static_cast<size_t>(group.rank())], net);
    tests::take_step(*engine, data_of(kBatch, 0), 1);
    const std::string before = sha256_of(state_of(*net).parameters);
    tests::Data bad = data_of(kBatch, 1);
    bad.x[kBatch - 1][0] = NAN;  // Of rank 1.
    const StepOutcome outcome = tests::take_step(*engine, bad, 2);
    EXPECT_FALSE(outcome.updated);
    EXPECT_EQ(outcome.nonfinite_ranks, std::vector<int>{1});
    EXPECT_EQ(sha256_of(state_of(*net).parameters), before);
    EXPECT_TRUE(tests::take_step(*engine, data_of(kBatch, 2), 2).updated);
  });
  EXPECT_EQ(job.all[1]->facts().updates, 2);
}

// Runs some steps of an engine, and gives its state.
EngineState state_after(Engine& engine, int steps) {
  for (int step = 0; step < steps; ++step)
    tests::take_step(engine, data_of(kBatch, step), step + 1);
  engine.prepare_to_read();
  return tests::copy_of(engine.state());
}

TEST(ServerEngine, TheStateIsThatOfAnyOtherStrategy) {
  for (const OptimizerFactory& optimizer :
       {OptimizerFactory(SGD{.lr = 0.1, .momentum = 0.9}), OptimizerFactory(Adam{.lr = 0.01})}) {
    const Job job(2, 1, {}, optimizer), next_job(3, 1, {}, optimizer);
    const auto groups = thread_groups(1);
    const auto alone = one_device(groups[0], std::make_shared<Mlp>(), optimizer);
    const auto engine = job.engine(groups[0], std::make_shared<Mlp>());
    const EngineState of_servers = state_after(*engine, 3), of_one = state_after(*alone, 3);
    ASSERT_EQ(of_servers.tensors.size(), of_one.tensors.size());
    EXPECT_EQ(of_servers.counters.at("optimizer"), of_one.counters.at("optimizer"));
    for (const StateEntry& entry : of_one.tensors) {
      const auto same = std::ranges::find_if(of_servers.tensors, [&](const StateEntry& each) {
        return each.slice.tensor == entry.slice.tensor && each.kind == entry.kind;
      });
      ASSERT_NE(same, of_servers.tensors.end()) << entry.slice.tensor;
      EXPECT_TRUE(at::allclose(same->tensor, entry.tensor, 1e-12, 1e-12)) << entry.slice.tensor;
    }
    // Each goes on from the state of the other.
    const auto from_servers = one_device(groups[0], std::make_shared<Mlp>(), optimizer);
    const auto from_one = next_job.engine(groups[0], std::make_shared<Mlp>());
    tests::load(*from_servers, of_servers, 0);
    tests::load(*from_one, of_one, 0);
    for (int step = 3; step < 6; ++step) {
      const double loss = tests::take_step(*alone, data_of(kBatch, step), step + 1).loss;
      for (Engine* const each : {from_servers.get(), from_one.get(), engine.get()})
        EXPECT_NEAR(tests::take_step(*each, data_of(kBatch, step), step + 1).loss, loss, 1e-10);
    }
  }
}

TEST(ServerEngine, AnEvaluationReadsNoStateOfTheOptimizer) {
  const Job job(2, 1, {}, SGD{.lr = 0.1, .momentum = 0.9});
  const auto groups = thread_groups(1);
  const auto engine = job.engine(groups[0], std::make_shared<Mlp>());
  for (int step = 0; step < 3; ++step) tests::take_step(*engine, data_of(kBatch, step), step + 1);
  const size_t before = engine->state().tensors.size();
  engine->prepare_to_evaluate();
  const std::string evaluated =
      sha256_of(tensors_of(engine->state().tensors, StateKind::parameter));
  EXPECT_EQ(engine->state().tensors.size(), before) << "the momentum stays on the servers";
  engine->prepare_to_read();
  EXPECT_GT(engine->state().tensors.size(), before);
  EXPECT_EQ(sha256_of(tensors_of(engine->state().tensors, StateKind::parameter)), evaluated);
}

Batch whole_batch(int64_t number) { return tests::batch_of(data_of(kBatch, number), 0, 1); }

// The batches of a round that the ranks were told.
struct Told {
  std::vector<std::vector<CountedPass>> by_rank;
  std::vector<RoundEnd> ends;
};

Told run_round(const Job& job, int ranks, int64_t batches, int slow_rank = -1) {
  const auto groups = thread_groups(ranks);
  Told told{std::vector<std::vector<CountedPass>>(static_cast<size_t>(ranks)),
            std::vector<RoundEnd>(static_cast<size_t>(ranks))};
  on_ranks(groups, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    const auto engine = job.engine(groups[rank], std::make_shared<Mlp>());
    RoundRequest request{.id = 1, .batches = batches};
    request.load = [&](int64_t number) {
      if (group.rank() == slow_rank) std::this_thread::sleep_for(Milliseconds(5));
      return whole_batch(number);
    };
    request.rates = [] { return std::vector<double>{0.05}; };
    request.counted = [&](const CountedPass& pass) { told.by_rank[rank].push_back(pass); };
    told.ends[rank] = engine->own_pace()->round(request);
    group.barrier();
    engine->prepare_to_read();
  });
  return told;
}

void expect_each_once(const Told& told, int64_t batches) {
  for (const auto& passes : told.by_rank) {
    std::vector<int> times(static_cast<size_t>(batches));
    for (const CountedPass& pass : passes) ++times[static_cast<size_t>(pass.number)];
    EXPECT_THAT(times, ::testing::Each(1));
    for (size_t i = 0; i < passes.size(); ++i) {
      EXPECT_EQ(passes[i].number, told.by_rank[0][i].number) << "in the same order";
      EXPECT_EQ(passes[i].loss, told.by_rank[0][i].loss);
      EXPECT_EQ(passes[i].samples, kBatch);
    }
  }
  for (const RoundEnd& end : told.ends) EXPECT_EQ(end.batches, batches);
}

TEST(ServerEngine, RanksAtTheirOwnPaceDoEachBatchOnce) {
  const std::vector<plan::ConsistencyOptions> modes = {{Consistency::async},
                                                       {Consistency::stale, 1},
                                                       {Consistency::delay_compensated},
                                                       {Consistency::sync, 0, 1}};
  for (const auto& mode : modes)
    for (const int servers : {1, 3}) {
      const Job job(servers, 3, mode);
      const Told told = run_round(job, 3, 31, /*slow_rank=*/1);
      expect_each_once(told, 31);
      const int64_t updates = job.all[0]->facts().updates;
      for (const auto& server : job.all) EXPECT_EQ(server->facts().updates, updates);
      if (mode.backup_workers == 0)
        EXPECT_EQ(updates, 31) << to_string(mode.consistency);
      else
        EXPECT_GE(updates, 16);  // An update has two pushes, and the last one fewer.
    }
}

TEST(ServerEngine, ABatchWhoseLossIsNotFiniteIsUsedAndUpdatesNothing) {
  const Job job(2, 1, {Consistency::async});
  const auto groups = thread_groups(1);
  const auto engine = job.engine(groups[0], std::make_shared<Mlp>());
  std::vector<CountedPass> passes;
  RoundRequest request{.id = 1, .batches = 3};
  request.load = [](int64_t number) {
    Batch batch = whole_batch(number);
    if (number == 1) batch.data.fill_(NAN);
    return batch;
  };
  request.rates = [] { return std::vector<double>{0.1}; };
  request.counted = [&](const CountedPass& pass) { passes.push_back(pass); };
  EXPECT_EQ(engine->own_pace()->round(request).batches, 3);
  ASSERT_EQ(passes.size(), 3U);
  EXPECT_FALSE(passes[1].loss.has_value());
  EXPECT_EQ(job.all[0]->facts().updates, 2);
}

TEST(ServerEngine, ARoundGoesOnWithoutARankThatIsLost) {
  for (const plan::ConsistencyOptions mode : {plan::ConsistencyOptions{Consistency::async},
                                              {Consistency::stale, 1},
                                              {Consistency::sync, 0, 1}}) {
    Job job(2, 3, mode);
    const auto groups = thread_groups(3);
    const auto request_of = [](std::vector<CountedPass>& passes) {
      RoundRequest request{.id = 7, .batches = 20};
      request.load = whole_batch;
      request.rates = [] { return std::vector<double>{0.05}; };
      request.counted = [&](const CountedPass& pass) { passes.push_back(pass); };
      return request;
    };
    on_ranks(groups, [&](Group& group) {
      const auto engine =
          job.engine(groups[static_cast<size_t>(group.rank())], std::make_shared<Mlp>());
      std::vector<CountedPass> passes;
      RoundRequest request = request_of(passes);
      int loaded = 0;
      request.load = [&](int64_t number) {
        if (group.rank() == 1 && ++loaded == 3) {
          job.has_lost_one = true;
          throw Error(ErrorCode::internal, "test", "this rank ends with a lease");
        }
        // The others leave some batches to it.
        const Deadline deadline = Deadline::after(Milliseconds(20000));
        while (group.rank() != 1 && number >= 10 && !job.has_lost_one && !deadline.expired())
          std::this_thread::sleep_for(Milliseconds(1));
        return whole_batch(number);
      };
      EXPECT_ANY_THROW(engine->own_pace()->round(request));
    });
    job.has_lost_one = false;
    const auto left = thread_groups(2);
    Told told{std::vector<std::vector<CountedPass>>(2), std::vector<RoundEnd>(2)};
    on_ranks(left, [&](Group& group) {
      const auto rank = static_cast<size_t>(group.rank());
      const auto engine = job.engine(left[rank], std::make_shared<Mlp>(), /*generation=*/1);
      told.ends[rank] = engine->own_pace()->round(request_of(told.by_rank[rank]));
    });
    expect_each_once(told, 20);
  }
}

TEST(ServerEngine, AWorkerOfAnEarlierGenerationIsTurnedAway) {
  const Job job(1, 1, {Consistency::async});
  const auto groups = thread_groups(1);
  const auto old = job.engine(groups[0], std::make_shared<Mlp>());
  const auto now = job.engine(groups[0], std::make_shared<Mlp>(), /*generation=*/1);
  EXPECT_THAT(message_of(ErrorCode::aborted, [&] { old->prepare_to_read(); }),
              ::testing::HasSubstr("generation 0"));
}

TEST(ServerEngine, NeedsServers) {
  const auto groups = thread_groups(1);
  EngineSetting setting = tests::setting_of(groups[0], std::make_shared<Mlp>());
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { make_server_engine(setting); }),
              ::testing::HasSubstr("--ps"));
}

}  // namespace
}  // namespace trireme::server_engine_test
