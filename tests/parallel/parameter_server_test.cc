// Parameter servers and their workers, in one process over real channels.
#include "server_job.h"

// This header must come after those of torch.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <thread>

#include "../base/expect_error.h"

namespace trireme::parameter_server_test {
namespace {

using plan::Consistency;
using ::testing::AllOf;
using ::testing::HasSubstr;
using tests::Data;
using tests::data_of;
using tests::losses_of_workers;
using tests::placement_of;
using tests::ServedNet;
using tests::Servers;
using tests::soon;
using tests::Worker;

TEST(ParameterServers, SynchronousOnesGiveTheLossesOfOneDevice) {
  const std::vector<OptimizerFactory> optimizers = {SGD{.lr = 0.2, .momentum = 0.9},
                                                    Adam{.lr = 0.01}, AdamW{.lr = 0.01},
                                                    Adagrad{.lr = 0.05}, RMSprop{.lr = 0.005}};
  for (const OptimizerFactory& optimizer : optimizers) {
    const std::vector<double> reference = tests::losses_on_one_device(optimizer, 12);
    for (const int count : {1, 2, 3})
      for (const int workers : {1, 2, 5}) {  // 24 samples of 5 workers are uneven shares.
        const Servers servers(count, workers, {Consistency::sync}, optimizer);
        const std::vector<double> losses = losses_of_workers(servers, workers, 12);
        for (size_t i = 0; i < losses.size(); ++i)
          EXPECT_NEAR(losses[i], reference[i], 1e-10)
              << count << " servers, " << workers << " workers, step " << i;
        for (const auto& server : servers.all) {
          EXPECT_EQ(server->facts().updates, 12);
          EXPECT_EQ(server->facts().staleness, (std::map<int64_t, int64_t>{{0, 12 * workers}}));
        }
      }
  }
}

TEST(ParameterServers, BothPathsCarryTheSameBits) {
  std::vector<std::vector<double>> losses;
  for (const auto path : {net::RequestPath::tcp, net::RequestPath::shm})
    losses.push_back(losses_of_workers(Servers(2, 3, {Consistency::sync}), 3, 8, path));
  EXPECT_EQ(losses[0], losses[1]);
}

// Each worker runs its steps with pauses of its own.
std::vector<int64_t> run_with_pauses(const Servers& servers, const std::vector<int>& pauses_ms,
                                     int steps, std::vector<double>* last_losses = nullptr) {
  std::vector<std::jthread> threads;
  std::vector<int64_t> furthest(pauses_ms.size());
  if (last_losses) last_losses->resize(pauses_ms.size());
  for (size_t w = 0; w < pauses_ms.size(); ++w)
    threads.emplace_back([&, w] {
      Worker worker(servers, static_cast<int>(w));
      if (w == 0) worker.client->initialise(soon());
      worker.client->pull(soon());
      for (int i = 0; i < steps; ++i) {
        const double loss = worker.backward(data_of(24, i * 7 + static_cast<int>(w)));
        if (last_losses) (*last_losses)[w] = loss;
        std::this_thread::sleep_for(Milliseconds(pauses_ms[w]));
        furthest[w] = worker.client->push_pull(24, soon());
        if (i + 1 == steps) worker.client->leave(soon());
      }
    });
  threads.clear();
  return furthest;
}

TEST(ParameterServers, ASlowWorkerHoldsUpOthersByTheBoundAlone) {
  for (const int bound : {0, 1, 4}) {
    const Servers servers(2, 3, {Consistency::stale, bound});
    run_with_pauses(servers, {0, 0, 8}, 10);
    for (const auto& server : servers.all) {
      const ParameterServerFacts facts = server->facts();
      EXPECT_EQ(facts.updates, 30);
      // Between the pull and the push of a step, each other worker is at most `bound` steps ahead
      // and at most `bound` steps behind.
      EXPECT_LE(facts.staleness.rbegin()->first, 2 * (2 * bound + 1)) << bound;
    }
  }
}

TEST(ParameterServers, AsynchronousWorkersLearnAndWaitForNobody) {
  for (const Consistency mode : {Consistency::async, Consistency::delay_compensated}) {
    const Servers servers(2, 3, {mode}, SGD{.lr = 0.05});
    std::vector<double> losses;
    const double first = tests::losses_on_one_device(SGD{.lr = 0.05}, 1)[0];
    run_with_pauses(servers, {0, 1, 3}, 60, &losses);
    EXPECT_EQ(servers.all[0]->facts().updates, 180);
    for (const double loss : losses) EXPECT_LT(loss, first) << to_string(mode);
  }
}

TEST(ParameterServers, BackupWorkersDropThePushesThatComeLate) {
  const Servers servers(1, 3, {Consistency::sync, 0, 1});
  Worker slow(servers, 0), first(servers, 1), second(servers, 2);
  first.client->initialise(soon());
  for (Worker* const worker : {&slow, &first, &second}) {
    worker->client->pull(soon());
    worker->backward(data_of(24, 0));
  }
  first.client->push(24, soon());
  second.client->push(24, soon());
  EXPECT_EQ(servers.all[0]->facts().updates, 1);
  slow.client->push(24, soon());
  EXPECT_EQ(servers.all[0]->facts().late_pushes, 1);
  EXPECT_EQ(servers.all[0]->facts().updates, 1);
  EXPECT_EQ(slow.client->pull(soon()), 1);
}

TEST(ParameterServers, ACallThatWasNotAnsweredCanBeMadeAgain) {
  // Server 0 lets worker 0 wait for worker 1, until it gives up.
  Servers servers(2, 2, {Consistency::async});
  Worker worker(servers, 0);
  worker.client->initialise(soon());
  worker.client->pull(soon());
  worker.backward(data_of(24, 0));
  servers.all[0]->change({Consistency::sync});
  EXPECT_THAT(
      message_of(ErrorCode::timeout,
                 [&] { worker.client->push_pull(24, Deadline::after(Milliseconds(300))); }),
      HasSubstr("waited"));
  servers.all[0]->change({Consistency::async});
  EXPECT_EQ(worker.client->push_pull(24, soon()), 1);
  for (const auto& server : servers.all) EXPECT_EQ(server->facts().updates, 1);
  EXPECT_EQ(servers.all[0]->facts().repeated_pushes, 1);
}

TEST(ParameterServers, AllServersMakeTheSameUpdatesWhicheverPushesAreLate) {
  const Servers servers(3, 3, {Consistency::sync, 0, 1});
  std::vector<std::jthread> threads;
  std::vector<std::string> hashes(3);
  for (int w = 0; w < 3; ++w)
    threads.emplace_back([&, w] {
      Worker worker(servers, w);
      if (w == 0) worker.client->initialise(soon());
      worker.client->pull(soon());
      for (int i = 0; i < 20; ++i) {
        worker.backward(data_of(24, i * 3 + w));
        worker.client->push_pull(24, soon());
      }
      worker.client->leave(soon());
      worker.client->refresh(soon());
    });
  threads.clear();
  for (const auto& server : servers.all)
    EXPECT_EQ(server->facts().updates, servers.all[0]->facts().updates);
}

TEST(ParameterServers, WhatDidNotChangeDoesNotTravel) {
  const Servers servers(2, 1, {Consistency::async});
  Worker worker(servers, 0);
  worker.client->initialise(soon());
  worker.client->pull(soon());
  const auto versions = worker.client->versions();
  worker.client->pull(soon());
  EXPECT_EQ(worker.client->versions(), versions);
  EXPECT_EQ(servers.all[0]->facts().unchanged_pulls, 1);
}

TEST(ParameterServers, TheFirstValuesCount) {
  const Servers servers(2, 2, {Consistency::async});
  Worker first(servers, 0), second(servers, 1);
  {
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : second.net.parameters()) parameter.add_(1);
  }
  first.client->initialise(soon());
  second.client->initialise(soon());
  second.client->pull(soon());
  EXPECT_EQ(sha256_of(state_of(second.net).parameters), sha256_of(state_of(first.net).parameters));
}

TEST(ParameterServers, AllFirstValuesAreThoseOfOneWorker) {
  for (int trial = 0; trial < 10; ++trial) {
    const Servers servers(3, 3, {Consistency::async});
    std::vector<std::string> hashes(3), pulled(3);
    std::vector<std::jthread> threads;
    for (int w = 0; w < 3; ++w)
      threads.emplace_back([&, w] {
        Worker worker(servers, w);
        {
          const at::NoGradGuard no_grad;
          for (at::Tensor& parameter : worker.net.parameters()) parameter.add_(w);
        }
        hashes[static_cast<size_t>(w)] = sha256_of(state_of(worker.net).parameters);
        worker.client->initialise(soon());
        worker.client->pull(soon());
        pulled[static_cast<size_t>(w)] = sha256_of(state_of(worker.net).parameters);
      });
    threads.clear();
    EXPECT_EQ(std::ranges::count(hashes, pulled[0]), 1);
    EXPECT_EQ(std::ranges::count(pulled, pulled[0]), 3);
  }
}

TEST(ParameterServers, AnEmptyShareCountsForNothing) {
  const Servers servers(2, 2, {Consistency::sync});
  Worker worker(servers, 0), idle(servers, 1);
  worker.client->initialise(soon());
  for (Worker* const each : {&worker, &idle}) {
    each->client->pull(soon());
    each->backward(data_of(24, 0));
  }
  idle.net.in->weight.mutable_grad().fill_(NAN);  // The mean of no losses.
  idle.client->push(0, soon());
  EXPECT_EQ(worker.client->push_pull(24, soon()), 1);
  for (const at::Tensor& parameter : worker.net.parameters())
    EXPECT_TRUE(parameter.isfinite().all().item<bool>());
}

// Worker 0 has pushed its first step, and waits for worker 1 before its next one.
std::future<int64_t> wait_for_the_other(const Servers& servers, Worker& worker) {
  worker.client->initialise(soon());
  worker.client->pull(soon());
  worker.backward(data_of(24, 0));
  auto waits =
      std::async(std::launch::async, [&] { return worker.client->push_pull(24, soon()); });
  const Deadline deadline = soon();
  while (servers.all[0]->facts().pushes == 0 && !deadline.expired())
    std::this_thread::sleep_for(Milliseconds(1));
  EXPECT_EQ(waits.wait_for(Milliseconds(50)), std::future_status::timeout);
  return waits;
}

TEST(ParameterServers, AModeThatChangesFreesThoseThatWait) {
  const Servers servers(1, 2, {Consistency::sync});
  Worker worker(servers, 0), other(servers, 1);
  auto waits = wait_for_the_other(servers, worker);
  servers.all[0]->change({Consistency::async});
  EXPECT_EQ(waits.get(), 1);
  EXPECT_EQ(servers.all[0]->facts().updates, 1);
}

TEST(ParameterServers, ALostWorkerFreesThoseThatWait) {
  for (const Consistency mode : {Consistency::sync, Consistency::stale}) {
    const Servers servers(1, 2, {mode});
    Worker worker(servers, 0), other(servers, 1);
    auto waits = wait_for_the_other(servers, worker);
    servers.all[0]->leave(1);
    EXPECT_EQ(waits.get(), 1);
  }
}

TEST(ParameterServers, AWorkerThatWaitsTooLongLearnsForWhom) {
  const Servers servers(
      1, 2, {Consistency::stale, 1}, SGD{.lr = 0.1},
      [](ParameterServerOptions& options) { options.patience = Milliseconds(200); });
  Worker worker(servers, 0), other(servers, 1);
  worker.client->initialise(soon());
  worker.client->pull(soon());
  worker.backward(data_of(24, 0));
  worker.client->push_pull(24, soon());
  EXPECT_THAT(message_of(ErrorCode::timeout, [&] { worker.client->push_pull(24, soon()); }),
              AllOf(HasSubstr("waits for worker 1"), HasSubstr("step 0"), HasSubstr("stale")));
  EXPECT_EQ(servers.all[0]->facts().updates, 2) << "the push counts";
}

TEST(ParameterServers, RefuseWhatCannotBe) {
  const Servers servers(1, 1, {Consistency::sync});
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { Worker(servers, 1); }),
              HasSubstr("worker 1 of a job with 1 workers"));
  Worker worker(servers, 0);
  worker.backward(data_of(24, 0));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { worker.client->push(24, soon()); }),
              HasSubstr("before the parameters have values"));
  worker.client->initialise(soon());
  worker.client->pull(soon());
  worker.net.in->weight.mutable_grad()[0][0] = NAN;
  EXPECT_THAT(message_of(ErrorCode::corrupt, [&] { worker.client->push(24, soon()); }),
              AllOf(HasSubstr("in.weight"), HasSubstr("NaN")));
  EXPECT_EQ(servers.all[0]->facts().updates, 0);
  ServedNet wide(12);
  ServerClientOptions options{.placement = placement_of(wide, 1)};
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [&] {
                           ServerClient(servers.endpoints(), servers.token, options,
                                        state_of(wide).parameters, soon());
                         }),
              AllOf(HasSubstr("in.weight"), HasSubstr("12, 6"), HasSubstr("9, 6")));
  EXPECT_THAT(message_of(ErrorCode::unsupported,
                         [] { Servers(1, 1, {Consistency::sync}, Lamb{.lr = 0.1}); }),
              HasSubstr("Lamb"));
  EXPECT_THAT(
      message_of(ErrorCode::invalid_argument, [] { Servers(1, 2, {Consistency::sync, 0, 2}); }),
      HasSubstr("ps.backup_workers"));
}

TEST(ParameterServers, AStrangerGetsNothing) {
  const Servers servers(1, 1, {Consistency::sync});
  ServedNet net;
  EXPECT_ANY_THROW(ServerClient(servers.endpoints(), net::make_token(),
                                {.placement = placement_of(net, 1)}, state_of(net).parameters,
                                Deadline::after(Milliseconds(1000))));
}

TEST(ParameterServers, AServerThatEndsIsNamed) {
  Servers servers(2, 1, {Consistency::sync}, SGD{.lr = 0.1}, {}, /*replication=*/1);
  Worker worker(servers, 0);
  worker.client->initialise(soon());
  worker.client->pull(soon());
  const std::string place = std::to_string(servers.all[1]->endpoint().port);
  servers.all[1].reset();
  worker.backward(data_of(24, 0));
  EXPECT_THAT(message_of(ErrorCode::peer_lost, [&] { worker.client->push_pull(24, soon()); }),
              HasSubstr(place));
}

// Pushes of constant gradients: with error feedback nothing of their sum is lost.
TEST(ParameterServers, CompressedPushesArriveInFewerBytesAndLate) {
  for (const std::string name : {"bf16", "fp16", "int8", "topk"}) {
    const plan::CompressionOptions compression{.name = name, .ratio = 0.25};
    Servers servers(3, 1, {Consistency::async}, SGD{.lr = 1},
                    [&](ParameterServerOptions& options) { options.compression = compression; });
    ServedNet net, before;
    ServerClient client(servers.endpoints(), servers.token,
                        {.placement = placement_of(net, 3), .compression = compression},
                        state_of(net).parameters, soon());
    client.initialise(soon());
    client.pull(soon());
    constexpr int kSteps = 80;
    for (int step = 0; step < kSteps; ++step) {
      double value = 0.01;
      for (at::Tensor& each : net.parameters()) each.mutable_grad() = at::full_like(each, -value);
      net.in->weight.mutable_grad()[0][0] = -0.031;
      client.push_pull(24, soon());
    }
    EXPECT_EQ(servers.all[0]->facts().updates, kSteps);
    const at::Tensor moved = net.in->weight - before.in->weight;
    // topk sends a quarter of the values, so others wait for about four steps.
    const double tolerance = name == "topk" ? 0.06 : 0.005 * 0.01 * kSteps;
    EXPECT_NEAR(moved[1][1].item<double>(), 0.01 * kSteps, tolerance) << name;
    EXPECT_NEAR(moved[0][0].item<double>(), 0.031 * kSteps, 3.1 * tolerance) << name;
    const compression::PushCodec codec(compression);
    EXPECT_LE(codec.bytes_of(4096), name == "topk" || name.ends_with("16") ? 8208 : 4160) << name;
  }
}

TEST(ParameterServers, CompressedPushesTrainAsOthersDo) {
  const plan::CompressionOptions compression{.name = "bf16"};
  const Servers servers(
      2, 2, {Consistency::sync}, SGD{.lr = 0.2, .momentum = 0.9},
      [&](ParameterServerOptions& options) { options.compression = compression; });
  const auto losses = losses_of_workers(servers, 2, 8, net::RequestPath::automatic, compression);
  const auto alone = tests::losses_on_one_device(SGD{.lr = 0.2, .momentum = 0.9}, 8);
  double distance = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(losses[i], alone[i], 0.02 * alone[i]);
    distance += std::abs(losses[i] - alone[i]);
  }
  EXPECT_GT(distance, 1e-6) << "nothing was compressed";
}

TEST(ParameterServers, CompressionsOfBothSidesAreTheSame) {
  const Servers servers(1, 1, {Consistency::sync});
  ServedNet net;
  ServerClient client(servers.endpoints(), servers.token,
                      {.placement = placement_of(net, 1), .compression = {.name = "int8"}},
                      state_of(net).parameters, soon());
  client.initialise(soon());
  client.pull(soon());
  for (at::Tensor& each : net.parameters()) each.mutable_grad() = at::ones_like(each);
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { client.push_pull(24, soon()); }),
              AllOf(HasSubstr("uint8"), HasSubstr("strategy.compression")));
  EXPECT_THAT(message_of(ErrorCode::unsupported,
                         [] { compression::PushCodec codec({.name = "powersgd"}); }),
              AllOf(HasSubstr("powersgd"), HasSubstr("topk")));
}

// docs/parameter_server.md has these lines.
TEST(ParameterServers, TheExampleOfTheDocument) {
  ServedNet model;
  const std::vector<plan::TensorSpec> specs = placement_of(model, 1).facts.tensors;
  const std::string token = net::make_token();
  const std::vector<Data> batches = {data_of(24, 0), data_of(24, 1)};

  const plan::PlacementPlan placement = plan::plan_placement({.tensors = specs, .servers = 1});

  const plan::ConsistencyOptions consistency{plan::Consistency::stale, /*staleness=*/2};
  ParameterServer server({"127.0.0.1", 0}, token,
                         {.placement = placement,
                          .server = 0,  // Its number, such as World::task().index.
                          .optimizer = SGD{.lr = 0.1},
                          .consistency = consistency,
                          .workers = 1});

  const auto deadline = [] { return Deadline::after(Milliseconds(60000)); };
  ServerClient servers({server.endpoint()}, token, {.placement = placement, .worker = 0},
                       state_of(model).parameters, deadline());
  servers.initialise(deadline());  // The first values that come count.
  servers.pull(deadline());
  for (const Data& batch : batches) {
    tests::cross_entropy(model.forward(batch.x), batch.y).backward();
    servers.push_pull(batch.size(), deadline());
    model.zero_grad();
  }
  servers.leave(deadline());  // Nobody waits for this worker any more.
  EXPECT_EQ(server.facts().updates, 2);
}

}  // namespace
}  // namespace trireme::parameter_server_test
